#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json_of.h"
#include "bench/add_bench.h"
#include "bench/broadcast/broadcast_bench.h"
#include "bench/commands.h"
#include "sim/options.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

/// One broadcast, simulated, and measured too unless it has too many workers for that.
struct PredictCase {
  BroadcastCase real;  ///< only what was asked, if it was not measured
  bool measured = false;
  std::string topology;                        ///< what the simulation's planner chose
  std::optional<double> t50_s, t90_s, t100_s;  ///< simulated
  double bound_s = 0;                          ///< of any topology

  /// Of a real time: without taking the snapshot over, which is not simulated.
  [[nodiscard]] std::optional<double> sent_s(const std::optional<double>& t_s) const {
    return measured && t_s ? std::optional(*t_s - real.take_s) : std::nullopt;
  }
  /// The error of the simulated t100, as a share of the real one. Negative if the simulation was too optimistic.
  [[nodiscard]] std::optional<double> error() const {
    const auto sent = sent_s(real.t100_s);
    if (!sent || !t100_s) return std::nullopt;
    return (*t100_s - *sent) / *sent;
  }
};

struct PredictBenchOptions {
  LinkFlags links;
  std::vector<std::string> topologies{"star", "chain", "tree", "striped"};
  std::vector<std::size_t> measured_workers{3, 6, 12, 24};
  std::vector<std::size_t> further_workers;  ///< only simulated
  double delay_ms = 0.1;                     ///< of the simulated network, one way
  double overestimate_max = 0;
  FleetFlags flags;
};

std::optional<double> seconds_of(std::optional<Duration> d) { return d ? std::optional(to_seconds(*d)) : std::nullopt; }

/// `efficiency`: what of a cap a plain stream reaches.
Result<PredictCase> simulate_case(BroadcastCase real, bool measured, double efficiency, Duration one_way_delay) {
  sim::SimOptions options;
  options.workers = static_cast<std::uint32_t>(real.peers.size());
  options.payload_bytes = real.payload_bytes;
  options.topology = real.topology;
  options.network.origin_uplink = Rate{real.uplink.bytes_per_s * efficiency};
  options.network.worker_uplink = Rate{real.peers.front().uplink.bytes_per_s * efficiency};
  options.network.worker_downlink = Rate{real.peers.front().downlink.bytes_per_s * efficiency};
  options.network.one_way_delay = one_way_delay;
  options.settle_max = std::chrono::hours(24);
  options.thorough = false;
  const sim::SimResult simulated = sim::simulate(options);
  if (simulated.violation) return fail(Errc::kCorrupt, Op::kVerify, *simulated.violation);
  const sim::PublicationResult& publication = simulated.publications.front();
  PredictCase result;
  result.real = std::move(real);
  result.measured = measured;
  result.topology = to_string(publication.topology);
  result.t50_s = seconds_of(publication.reached(0.5));
  result.t90_s = seconds_of(publication.reached(0.9));
  result.t100_s = seconds_of(publication.reached(1.0));
  result.bound_s = to_seconds(publication.bound);
  return result;
}

nlohmann::json to_json(const std::vector<PredictCase>& cases) {
  nlohmann::json list = nlohmann::json::array();
  for (const PredictCase& c : cases) {
    nlohmann::json real;
    if (c.measured) {
      real = WC_JSON_OF(c.real.t50_s, c.real.t90_s, c.real.t100_s, c.real.take_s, c.real.line_s);
    }
    list.push_back({{"topology", to_string(c.real.topology)},
                    {"planned_topology", c.topology},
                    {"workers", c.real.peers.size()},
                    {"uplink_bps", c.real.uplink.bits_per_s()},
                    {"peer_bps", c.real.peers.front().downlink.bits_per_s()},
                    {"peer_uplink_bps", c.real.peers.front().uplink.bits_per_s()},
                    {"payload_bytes", c.real.payload_bytes},
                    {"bound_s", c.bound_s},
                    {"simulated", WC_JSON_OF(c.t50_s, c.t90_s, c.t100_s)},
                    {"real", std::move(real)},
                    {"error", json_or_null(c.error())}});
  }
  return {{"cases", std::move(list)}};
}

std::string predict_heading() {
  return fmt::format("{:<8} {:>5} | {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8} {:>7} | {:>7} {:>8}", "topology", "n",
                     "sim t50", "t90", "t100 s", "real t50", "t90", "t100 s", "take s", "error", "bound s");
}

std::string predict_line(const PredictCase& c) {
  const auto error = c.error();
  return fmt::format("{:<8} {:>5} | {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8} {:>7} | {:>7} {:>8.3f}",
                     to_string(c.real.topology), c.real.peers.size(), seconds_or_dash(c.t50_s),
                     seconds_or_dash(c.t90_s), seconds_or_dash(c.t100_s), seconds_or_dash(c.sent_s(c.real.t50_s)),
                     seconds_or_dash(c.sent_s(c.real.t90_s)), seconds_or_dash(c.sent_s(c.real.t100_s)),
                     c.measured ? fmt::format("{:.3f}", c.real.take_s) : "-",
                     error ? fmt::format("{:+.1f}%", 100 * *error) : "-", c.bound_s);
}

Figure predict_figure(const std::vector<PredictCase>& cases) {
  Figure figure;
  const BroadcastCase& first = cases.front().real;
  figure.title =
      fmt::format("Time until a fraction of n workers has {}, B = {}, b = {}", format_bytes(first.payload_bytes),
                  format_rate(first.uplink), format_rate(first.peers.front().downlink));
  figure.caption =
      "Real: processes that verify, store and install; without taking the snapshot over. Simulated: the same core, at "
      "the rates of a plain TCP stream.";
  figure.x = {"workers n", Figure::Scale::kLog};
  figure.y = {"seconds", Figure::Scale::kLog};
  using Simulated = std::optional<double> PredictCase::*;
  using Real = std::optional<double> BroadcastCase::*;
  const std::vector<std::tuple<std::string, Simulated, Real>> panels = {
      {"rho = 0.5", &PredictCase::t50_s, &BroadcastCase::t50_s},
      {"rho = 0.9", &PredictCase::t90_s, &BroadcastCase::t90_s},
      {"rho = 1.0", &PredictCase::t100_s, &BroadcastCase::t100_s}};
  for (const auto& [title, simulated, real] : panels) {
    Figure::Panel& panel = figure.panels.emplace_back(Figure::Panel{title, {}});
    const auto add = [&](const std::string& name, double n, const std::optional<double>& t_s) {
      if (t_s) panel.series_of(name).points.push_back({n, *t_s});
    };
    std::map<double, double> bounds;
    for (const PredictCase& c : cases) {
      const auto n = double(c.real.peers.size());
      const std::string name(to_string(c.real.topology));
      add(name + ", simulated", n, c.*simulated);
      add(name + ", real", n, c.sent_s(c.real.*real));
      bounds[n] = c.bound_s;
    }
    for (const auto& [n, bound_s] : bounds) panel.series_of("bound", true).points.push_back({n, bound_s});
  }
  return figure;
}

/// Measures, then simulates. The simulation gets the rates that a plain TCP stream reached through the same caps,
/// because it does not model headers and the kernel's token buckets. Errors: those of measure_broadcast(); kCorrupt
/// (the simulation broke an invariant).
Result<std::vector<PredictCase>> measure(const PredictBenchOptions& options, const LinkSpec& links) {
  std::vector<PredictCase> results;
  const auto show = [&](PredictCase result) { print_now(predict_line(results.emplace_back(std::move(result)))); };
  const auto wanted = [&](Topology topology, std::size_t workers) {
    BroadcastCase c;
    c.topology = topology;
    c.uplink = links.uplink;
    c.peers.assign(workers, links.peer);
    c.payload_bytes = links.payload_bytes;
    return c;
  };
  // Without a measurement: what the last one of the same caps found, or all of it.
  double efficiency = 1;
  const Duration one_way_delay = from_seconds(options.delay_ms / 1e3);
  for (const std::string& name : options.topologies) {
    WC_ASSIGN(const Topology topology, parse_topology(name));
    for (const std::size_t workers : options.measured_workers) {
      WC_ASSIGN(BroadcastCase real, measure_broadcast(wanted(topology, workers), {.flags = options.flags}));
      efficiency = double(links.payload_bytes) / real.line_s / links.peer.downlink.bytes_per_s;
      WC_ASSIGN(PredictCase result, simulate_case(std::move(real), true, efficiency, one_way_delay));
      show(std::move(result));
    }
    for (const std::size_t workers : options.further_workers) {
      WC_ASSIGN(PredictCase result, simulate_case(wanted(topology, workers), false, efficiency, one_way_delay));
      show(std::move(result));
    }
  }
  return results;
}

Status run(const PredictBenchOptions& options) {
  WC_ASSIGN(const LinkSpec links, options.links.parse());
  print_now(predict_heading());
  WC_ASSIGN(const auto cases, measure(options, links));
  WC_TRY(write_json(options.flags.json_path, to_json(cases)));
  WC_TRY(write_result(options.flags.svg_path, to_svg(predict_figure(cases))));
  for (const PredictCase& c : cases) {
    const auto error = c.error();
    if (options.overestimate_max <= 0 || !error || *error <= options.overestimate_max) continue;
    return fail(
        Errc::kCorrupt, Op::kVerify,
        fmt::format(
            "{} to {} workers: the simulation predicts a t100 that is {:.1f} % too long, more than --overestimate-max",
            to_string(c.real.topology), c.real.peers.size(), 100 * *error));
  }
  return {};
}

}  // namespace

void add_predict_command(CLI::App& app) {
  const auto [command, options] = add_bench<const PredictBenchOptions>(
      app, "predict", "The simulation's prediction beside what real processes do", run);
  command->add_option("--workers", options->measured_workers, "Numbers of workers to measure and simulate")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}));
  command->add_option("--simulate", options->further_workers, "Further numbers of workers, only to simulate")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{10000}));
  options->links.add_to(*command);
  command->add_option("--topology", options->topologies, "star, chain, tree, striped or auto")
      ->delimiter(',')
      ->check(topology_validator());
  command->add_option("--delay-ms", options->delay_ms, "One-way delay of the simulated network")
      ->check(CLI::Range(0.0, 60'000.0));
  command
      ->add_option("--overestimate-max", options->overestimate_max,
                   "Fail if a simulated t100 is longer than the real one by more than this share")
      ->check(CLI::Range(0.0, 10.0))
      ->default_str("");
  options->flags.add_to(*command);
  command->add_option("--svg", options->flags.svg_path, "Also draw time against the number of workers");
}

}  // namespace weightcast::bench
