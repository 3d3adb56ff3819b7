#include "bench/predict/predict_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json_of.h"
#include "sim/options.h"

namespace weightcast::bench {
namespace {

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

}  // namespace

std::optional<double> PredictCase::sent_s(const std::optional<double>& t_s) const {
  return measured && t_s ? std::optional(*t_s - real.take_s) : std::nullopt;
}

std::optional<double> PredictCase::error() const {
  const auto sent = sent_s(real.t100_s);
  if (!sent || !t100_s) return std::nullopt;
  return (*t100_s - *sent) / *sent;
}

Result<std::vector<PredictCase>> run_predict_bench(const PredictBenchOptions& options,
                                                   const std::function<void(const PredictCase&)>& on_case) {
  std::vector<PredictCase> results;
  const auto wanted = [&](Topology topology, std::size_t workers) {
    BroadcastCase c;
    c.topology = topology;
    c.uplink = options.links.uplink;
    c.peers.assign(workers, options.links.peer);
    c.payload_bytes = options.links.payload_bytes;
    return c;
  };
  // Without a measurement: what the last one of the same caps found, or all of it.
  double efficiency = 1;
  for (const Topology topology : options.topologies) {
    for (const std::size_t workers : options.measured_workers) {
      WC_ASSIGN(auto measured, run_broadcast_bench({{wanted(topology, workers)}, 1, Content::kRandom, options.flags},
                                                   [](const BroadcastCase&) {}));
      BroadcastCase& real = measured.front();
      efficiency = double(options.links.payload_bytes) / real.line_s / options.links.peer.downlink.bytes_per_s;
      WC_ASSIGN(PredictCase result, simulate_case(std::move(real), true, efficiency, options.one_way_delay));
      on_case(results.emplace_back(std::move(result)));
    }
    for (const std::size_t workers : options.further_workers) {
      WC_ASSIGN(PredictCase result, simulate_case(wanted(topology, workers), false, efficiency, options.one_way_delay));
      on_case(results.emplace_back(std::move(result)));
    }
  }
  return results;
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
    Figure::Panel panel{title, {}};
    const auto add = [&](const std::string& name, double n, const std::optional<double>& t_s) {
      if (!t_s) return;
      auto series = std::ranges::find(panel.series, name, &Figure::Series::name);
      if (series == panel.series.end()) series = panel.series.insert(series, {name, false, {}});
      series->points.push_back({n, *t_s});
    };
    std::map<double, double> bounds;
    for (const PredictCase& c : cases) {
      const auto n = double(c.real.peers.size());
      const std::string name(to_string(c.real.topology));
      add(name + ", simulated", n, c.*simulated);
      add(name + ", real", n, c.sent_s(c.real.*real));
      bounds[n] = c.bound_s;
    }
    Figure::Series bound{"bound", true, {}};
    for (const auto& [n, bound_s] : bounds) bound.points.push_back({n, bound_s});
    panel.series.push_back(std::move(bound));
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

}  // namespace weightcast::bench
