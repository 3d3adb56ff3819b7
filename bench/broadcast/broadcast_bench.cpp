#include "bench/broadcast/broadcast_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json_of.h"
#include "bench/fleet/plain_stream.h"

namespace weightcast::bench {
namespace {

using Measured = std::vector<BroadcastCase>;

Status measure_lines(Network& network, BroadcastCase& measured) {
  // Links that are alike are measured once.
  std::vector<std::pair<LinkRates, PlainStream>> known;
  for (NodeIndex node = 1; node <= measured.workers.size(); ++node) {
    const LinkRates rates = network.rates(node);
    auto same = std::ranges::find(known, rates, &std::pair<LinkRates, PlainStream>::first);
    if (same == known.end()) {
      const Rate cap = lower(network.rates(0).uplink, rates.downlink);
      WC_ASSIGN(const PlainStream stream, time_plain_stream(network, 0, node, measured.payload_bytes, cap));
      same = known.insert(known.end(), {rates, stream});
    }
    measured.workers[node - 1].line_s = same->second.seconds;
  }
  measured.line_s = known.front().second.seconds;
  measured.line_cpu_s = known.front().second.cpu_s;
  return {};
}

std::string series_name(const BroadcastCase& c) {
  return fmt::format("{}, B = {}", to_string(c.topology), c.uplink.limited() ? format_rate(c.uplink) : "unlimited");
}

}  // namespace

std::vector<LinkRates> BroadcastCase::rates() const {
  std::vector<LinkRates> rates{{uplink, Rate{}}};
  rates.insert(rates.end(), peers.begin(), peers.end());
  return rates;
}

std::optional<double> BroadcastCase::ratio() const {
  if (!t100_s || line_s <= 0) return std::nullopt;
  return *t100_s / line_s;
}

double BroadcastCase::cpu_s_per_delivered_gib() const {
  const double delivered_bytes = double(payload_bytes) * double(peers.size());
  return delivered_bytes > 0 ? cpu_s / (delivered_bytes / double(kGiB)) : 0;
}

Result<BroadcastCase> measure_broadcast(const BroadcastCase& wanted, const BroadcastBenchOptions& bench) {
  const FleetFlags& flags = bench.flags;
  WC_ASSIGN(const std::unique_ptr<Network> network, flags.make_network(wanted.rates()));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  const std::filesystem::path path = scratch.path() / "model.safetensors";
  WC_ASSIGN(Payload payload, make_payload(path, wanted.payload_bytes, 0, bench.content));
  BroadcastCase measured = wanted;
  measured.workers.resize(wanted.peers.size());
  WC_TRY(measure_lines(*network, measured));

  // A snapshot per node, and as much again for what the page cache and the nodes themselves take.
  WC_ASSIGN(const WarmMemory warm, flags.warm_memory(2 * wanted.payload_bytes * (wanted.peers.size() + 2)));
  FleetOptions options = flags.options(scratch.path());
  options.topology = wanted.topology;
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, wanted.peers.size(), options));
  WC_ASSIGN(Broadcast broadcast, fleet->broadcast(Version{1}, payload, {}));
  for (std::uint64_t version = 2; version <= bench.versions; ++version) {
    WC_ASSIGN(payload, make_payload(path, wanted.payload_bytes, version, bench.content));
    WC_ASSIGN(broadcast, fleet->broadcast(Version{version}, payload, {}));
  }

  WC_ASSIGN(const nlohmann::json own, fleet->status(1));
  own.at("nodes")[0].at("payload").get_to(measured.kind);
  own.at("nodes")[0].at("payload_bytes").get_to(measured.travel_bytes);
  measured.planned_topology = broadcast.outcome.topology;
  measured.predicted_s = broadcast.outcome.predicted_s;
  static_cast<BroadcastCost&>(measured) = broadcast;
  for (std::size_t i = 0; i < measured.workers.size(); ++i) {
    measured.workers[i].t_s = broadcast.installed_s[i];
    measured.workers[i].received_bytes = broadcast.received_bytes[i];
    if (!broadcast.installed_s[i]) {
      return fail(Errc::kTimedOut, Op::kInstall,
                  fmt::format("worker {} of {} did not install it", i + 1, measured.workers.size()));
    }
    WC_TRY(check_installed(fleet->state(i + 1), payload));
  }
  return measured;
}

std::vector<BroadcastCase> echo2_cases(const std::vector<std::size_t>& workers, std::uint64_t payload_bytes) {
  const Rate b = Rate::bits(100e6);
  std::vector<BroadcastCase> cases;
  const auto add = [&](Topology topology, Rate uplink) {
    for (const std::size_t n : workers) {
      BroadcastCase& c = cases.emplace_back();
      c.topology = topology;
      c.uplink = uplink;
      c.peers.assign(n, LinkRates{b, b});
      c.payload_bytes = payload_bytes;
    }
  };
  add(Topology::kStar, Rate{});
  for (const double uplink_mbit : {300.0, 600.0, 1000.0}) add(Topology::kStar, Rate::bits(uplink_mbit * 1e6));
  for (const double uplink_mbit : {300.0, 600.0, 1000.0}) add(Topology::kChain, Rate::bits(uplink_mbit * 1e6));
  return cases;
}

nlohmann::json to_json(const Measured& cases) {
  nlohmann::json list = nlohmann::json::array();
  for (const BroadcastCase& c : cases) {
    nlohmann::json workers = nlohmann::json::array();
    for (std::size_t i = 0; i < c.workers.size(); ++i) {
      const BroadcastCase::Worker& w = c.workers[i];
      workers.push_back({{"uplink_bps", c.peers[i].uplink.bits_per_s()},
                         {"downlink_bps", c.peers[i].downlink.bits_per_s()},
                         {"t_s", json_or_null(w.t_s)},
                         {"line_s", w.line_s},
                         {"ratio", w.t_s ? nlohmann::json(*w.t_s / w.line_s) : nlohmann::json()},
                         {"received_bytes", w.received_bytes}});
    }
    list.push_back(merged(WC_JSON_OF(c.planned_topology, c.payload_bytes, c.kind, c.travel_bytes, c.t50_s, c.t90_s,
                                     c.t100_s, c.line_s, c.ratio(), c.predicted_s, c.take_s, c.origin_egress_bytes,
                                     c.cpu_s, c.cpu_s_per_delivered_gib(), c.stolen_s, c.rss_anon_bytes_max),
                          {{"topology", to_string(c.topology)},
                           {"workers", c.peers.size()},
                           {"uplink_bps", c.uplink.bits_per_s()},  // 0: unlimited
                           {"peer_bps", c.peers.front().downlink.bits_per_s()},
                           {"line_cpu_s_per_gib", c.line_cpu_s / (double(c.payload_bytes) / double(kGiB))},
                           {"per_worker", std::move(workers)}}));
  }
  return {{"cases", std::move(list)}};
}

std::string broadcast_heading() {
  return fmt::format(
      "{:<8} {:>3} {:>12} {:>12} {:>9} {:>8} {:>8} {:>8} {:>8} {:>7} {:>9} {:>9} {:>8} {:>8} {:>7} {:>9}", "topology",
      "n", "uplink", "peer", "payload", "t50_s", "t90_s", "t100_s", "line_s", "ratio", "egress/M", "cpu_s/GiB",
      "stolen_s", "RssAnon", "kind", "travels");
}

std::string broadcast_line(const BroadcastCase& c) {
  const auto mebibytes = [](std::uint64_t bytes) { return fmt::format("{:.0f} MiB", double(bytes) / double(kMiB)); };
  return fmt::format(
      "{:<8} {:>3} {:>12} {:>12} {:>9} {:>8} {:>8} {:>8} {:>8.3f} {:>7} {:>9.3f} {:>9.2f} {:>8.2f} {:>8} {:>7} {:>9}",
      to_string(c.topology), c.peers.size(), format_rate(c.uplink), format_rate(c.peers.front().downlink),
      format_bytes(c.payload_bytes), seconds_or_dash(c.t50_s), seconds_or_dash(c.t90_s), seconds_or_dash(c.t100_s),
      c.line_s, seconds_or_dash(c.ratio()), double(c.origin_egress_bytes) / double(c.payload_bytes),
      c.cpu_s_per_delivered_gib(), c.stolen_s, mebibytes(c.rss_anon_bytes_max), c.kind, format_bytes(c.travel_bytes));
}

Figure broadcast_figure(const Measured& cases) {
  Figure figure;
  const BroadcastCase& first = cases.front();
  figure.title = fmt::format("Time until a fraction of n workers has installed {}, b = {}",
                             format_bytes(first.payload_bytes), format_rate(first.peers.front().downlink));
  figure.caption =
      "Real processes; every worker verifies, stores and installs. Line: a plain TCP stream through one worker's link.";
  figure.x.label = "workers n";
  figure.y.label = "seconds";
  using TimeOf = std::optional<double> BroadcastCase::*;
  const std::vector<std::pair<std::string, TimeOf>> panels = {{"rho = 0.5", &BroadcastCase::t50_s},
                                                              {"rho = 0.9", &BroadcastCase::t90_s},
                                                              {"rho = 1.0", &BroadcastCase::t100_s}};
  for (const auto& [title, time_of] : panels) {
    Figure::Panel& panel = figure.panels.emplace_back(Figure::Panel{title, {}});
    std::map<double, std::pair<double, int>> line;  // by n: sum and count
    for (const BroadcastCase& c : cases) {
      const auto n = double(c.peers.size());
      Figure::Series& series = panel.series_of(series_name(c));
      if (c.*time_of) series.points.push_back({n, *(c.*time_of)});
      line[n].first += c.line_s;
      line[n].second += 1;
    }
    for (const auto& [n, sum] : line) panel.series_of("line", true).points.push_back({n, sum.first / sum.second});
  }
  return figure;
}

}  // namespace weightcast::bench
