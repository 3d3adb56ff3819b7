#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <set>

#include "base/json_of.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/faults/corrupting_proxy.h"
#include "bench/fleet/port_taker.h"
#include "bench/fleet/process.h"

namespace weightcast::bench {
namespace {

// Past the start-up, early enough for what follows to matter.
constexpr double kFaultAtShare = 0.4;
constexpr double kOriginStopped_s = 5;
constexpr double kPartitioned_s = 4;
constexpr Duration kTimeout = std::chrono::seconds(90);
// How rates are watched: often enough to see a gap of a tenth, over long enough to see no single chunk.
constexpr double kSampleEvery_s = 0.1;
constexpr std::size_t kSamplesPerRate = 4;
constexpr double kRecoveredShare = 0.8;
const Rate kThrottled = Rate::bits(5e6);
// The lying relay is set up before anyone knows the plan; the first to join is the first of a chain.
constexpr NodeIndex kLyingRelay = 1;

enum class Victims { kNone, kForwarder, kHalfOfForwarders, kLeaf, kOrigin };
enum class Fault { kNone, kKill, kStop, kThrottle, kCutOff, kPause, kLie, kPartition, kMute };

struct Scenario {
  const char* name;
  const char* description;
  Victims victims;
  Fault fault;
  bool needs_hosts;
  bool from_start = false;  ///< of the first to join, before its children dial it; else in the publication's middle
};

constexpr Scenario kScenarios[] = {
    {"forwarder-killed", "SIGKILL of a worker that receives from the origin and forwards", Victims::kForwarder,
     Fault::kKill, false},
    {"forwarder-stopped", "SIGSTOP of such a worker", Victims::kForwarder, Fault::kStop, false},
    {"forwarder-slows", "its link is throttled to 5 Mbit/s, both ways", Victims::kForwarder, Fault::kThrottle, true},
    {"forwarder-cut-off", "its link goes down, without a word to anyone", Victims::kForwarder, Fault::kCutOff, true},
    {"half-of-forwarders-killed", "SIGKILL of every other worker that forwards, at once", Victims::kHalfOfForwarders,
     Fault::kKill, false},
    {"forwarder-lies", "one bit in 4 MiB of what it sends is flipped", Victims::kNone, Fault::kLie, true},
    {"rollout-worker-killed", "SIGKILL of a worker that forwards to nobody", Victims::kLeaf, Fault::kKill, false},
    {"rollout-worker-slows", "its link is throttled to 5 Mbit/s", Victims::kLeaf, Fault::kThrottle, true},
    {"partition-4s", "a third of the workers is cut off from all others (iptables), for 4 s", Victims::kNone,
     Fault::kPartition, true},
    {"origin-stopped-5s", "SIGSTOP of the origin, SIGCONT 5 s later", Victims::kOrigin, Fault::kPause, false},
    {"relay-stopped-before", "SIGSTOP of a worker that will forward, before its children dial it", Victims::kNone,
     Fault::kStop, false, true},
    {"relay-mute", "the port of such a worker accepts its children's connections and says nothing", Victims::kNone,
     Fault::kMute, true, true},
};

NodeIndex index_of(const nlohmann::json& worker) { return std::stoul(worker.at("name").get<std::string>().substr(1)); }

/// Who has what place in the plan now.
struct Places {
  std::vector<NodeIndex> forwarders;  ///< those that the origin feeds come first
  std::vector<NodeIndex> leaves;
};

Result<Places> find_places(Fleet& fleet) {
  Places places;
  WC_ASSIGN(const nlohmann::json reply, fleet.status());
  for (const bool fed_by_origin : {true, false}) {
    for (const nlohmann::json& node : reply.at("nodes")) {
      if (node.at("role") == "origin" || (node.at("parent") == "origin") != fed_by_origin) continue;
      (node.at("children").empty() ? places.leaves : places.forwarders).push_back(index_of(node));
    }
  }
  if (places.forwarders.empty() || places.leaves.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "faults: nobody forwards in this plan; use more workers");
  }
  return places;
}

/// The worker that has joined first: before anyone knows the plan, the one that will be the first of a chain.
Result<NodeIndex> first_to_join(Fleet& fleet) {
  WC_ASSIGN(const nlohmann::json reply, fleet.status());
  std::optional<std::pair<std::uint32_t, NodeIndex>> first;
  for (const nlohmann::json& node : reply.at("nodes")) {
    if (node.at("role") == "origin") continue;
    const std::pair one(node.at("peer_id").get<std::uint32_t>(), index_of(node));
    first = std::min(first.value_or(one), one);
  }
  WC_CHECK(first.has_value());
  return first->second;
}

std::vector<NodeIndex> choose(const Places& places, Victims victims) {
  switch (victims) {
    case Victims::kNone: return {};
    case Victims::kForwarder: return {places.forwarders.front()};
    case Victims::kLeaf: return {places.leaves.front()};
    case Victims::kOrigin: return {0};
    case Victims::kHalfOfForwarders: break;
  }
  std::vector<NodeIndex> half;
  for (std::size_t i = 0; i < places.forwarders.size(); i += 2) half.push_back(places.forwarders[i]);
  return half;
}

Status strike(Fleet& fleet, NodeIndex node, Fault fault) {
  switch (fault) {
    case Fault::kKill: fleet.process(node).signal(SIGKILL); return {};
    case Fault::kStop:
    case Fault::kPause: fleet.process(node).signal(SIGSTOP); return {};
    case Fault::kThrottle: return fleet.network().set_rates(node, {kThrottled, kThrottled});
    case Fault::kCutOff: return fleet.network().set_connected(node, false);
    case Fault::kNone:
    case Fault::kPartition:
    case Fault::kMute:
    case Fault::kLie: return {};
  }
  return {};
}

/// Cuts the last third of the workers off from all others, or joins them again.
Status partition(Network& network, std::size_t workers, bool cut) {
  const NodeIndex first = workers - workers / 3 + 1;
  std::string others;
  for (NodeIndex node = 0; node < first; ++node) others += (node == 0 ? "" : ",") + network.endpoint(node).host;
  for (NodeIndex node = first; node <= workers; ++node) {
    for (const auto& [chain, side] : {std::pair("INPUT", "-s"), std::pair("OUTPUT", "-d")}) {
      WC_TRY(
          run_tool({"iptables", cut ? "-A" : "-D", chain, side, others, "-j", "DROP"}, "", network.namespace_fd(node)));
    }
  }
  return {};
}

/// Watches how fast survivors receive, to see when a fault is over.
class RateWatch {
 public:
  RateWatch(Fleet& fleet, std::uint64_t payload_bytes) : fleet_(fleet), payload_bytes_(payload_bytes) {}

  void sample(double elapsed_s, std::optional<double> fault_at_s, const std::set<NodeIndex>& victims) {
    if (elapsed_s < next_s_) return;
    next_s_ = elapsed_s + kSampleEvery_s;
    samples_.push_back({elapsed_s, fleet_.received_bytes([&](NodeIndex node) { return !victims.contains(node); })});
    if (samples_.size() <= kSamplesPerRate) return;
    const Sample& now = samples_.back();
    const Sample& then = samples_[samples_.size() - 1 - kSamplesPerRate];
    for (NodeIndex node = 1; node <= fleet_.worker_count(); ++node) {
      if (victims.contains(node) || !now.bytes[node - 1] || !then.bytes[node - 1]) continue;
      if (*now.bytes[node - 1] >= payload_bytes_) continue;
      const double rate = double(*now.bytes[node - 1] - *then.bytes[node - 1]) / (now.at_s - then.at_s);
      if (!fault_at_s) {
        before_[node] = std::max(before_[node], rate);
      } else if (rate < kRecoveredShare * before_[node]) {
        low_until_s_ = elapsed_s;
      }
    }
  }
  [[nodiscard]] double recovery_s(double fault_at_s) const { return std::max(0.0, low_until_s_ - fault_at_s); }

 private:
  struct Sample {
    double at_s = 0;
    std::vector<std::optional<std::uint64_t>> bytes;  // by worker; absent if it did not say
  };

  Fleet& fleet_;
  const std::uint64_t payload_bytes_;
  std::vector<Sample> samples_;
  std::map<NodeIndex, double> before_;
  double next_s_ = 0;
  double low_until_s_ = 0;
};

/// One broadcast with one fault in its middle.
struct FaultResult {
  std::string scenario;
  double fault_at_s = 0;
  double baseline_s = 0;              ///< t100 of the same broadcast without a fault, in the same run
  std::optional<double> survivors_s;  ///< until every worker that the fault left able to had installed it
  std::size_t workers = 0;
  std::size_t survivors = 0;  ///< workers from whom it was awaited
  std::size_t finished = 0;   ///< of those
  /// From the fault until every survivor received at 80 % or more of its rate before the fault.
  std::optional<double> recovery_s;
  std::uint64_t extra_bytes = 0;  ///< chunk bytes that survivors received beyond one payload each
  std::uint64_t corrupted = 0;    ///< bits flipped by a lying relay
  std::vector<std::string> victims;

  [[nodiscard]] std::optional<double> delay_s() const {
    return survivors_s ? std::optional(*survivors_s - baseline_s) : std::nullopt;
  }
  /// Share of the survivors' throughput that the fault cost, as ECHO-2's table has it.
  [[nodiscard]] std::optional<double> throughput_drop() const {
    return survivors_s ? std::optional(1 - baseline_s / *survivors_s) : std::nullopt;
  }
};

struct FaultsBenchOptions {
  LinkFlags links;
  std::size_t workers = 12;
  std::vector<std::string> scenarios;  ///< empty: all that the network can do
  FleetFlags flags;
};

Result<FaultResult> measure(const FaultsBenchOptions& options, const LinkSpec& links, const Scenario& scenario,
                            double fault_at_s) {
  WC_ASSIGN(const std::unique_ptr<Network> network, options.flags.make_network(links.rates(options.workers)));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  WC_ASSIGN(const Payload payload, make_payload(scratch.path() / "model.safetensors", links.payload_bytes, 1));
  WC_ASSIGN(const WarmMemory warm, options.flags.warm_memory(2 * links.payload_bytes * (options.workers + 2)));
  std::unique_ptr<CorruptingProxy> liar;
  if (scenario.fault == Fault::kLie) {
    WC_ASSIGN(liar, CorruptingProxy::start(*network, kLyingRelay));
  }
  FleetOptions fleet_options = options.flags.options(scratch.path());
  fleet_options.topology = Topology::kChain;
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, options.workers, fleet_options));

  std::set<NodeIndex> victims;
  TcpListener mute;  // the kernel accepts for it
  if (scenario.from_start) {
    WC_ASSIGN(const NodeIndex first, first_to_join(*fleet));
    if (scenario.fault == Fault::kMute) {
      WC_ASSIGN(mute, take_port(*network, first, network->endpoint(first).port));
    } else {
      victims.insert(first);
      WC_TRY(strike(*fleet, first, scenario.fault));
    }
  }
  bool struck = scenario.fault == Fault::kNone || scenario.from_start;
  bool paused = false;
  RateWatch watch(*fleet, payload.bytes);
  std::optional<double> struck_at_s;
  Fleet::BroadcastOptions broadcast_options;
  broadcast_options.timeout = kTimeout;
  broadcast_options.is_expected = [&](NodeIndex node) { return !victims.contains(node); };
  broadcast_options.on_tick = [&](double elapsed_s) -> Status {
    if (!struck && elapsed_s >= fault_at_s) {
      struck = true;
      struck_at_s = elapsed_s;
      WC_ASSIGN(const Places places, find_places(*fleet));
      for (const NodeIndex node : choose(places, scenario.victims)) {
        victims.insert(node);
        WC_TRY(strike(*fleet, node, scenario.fault));
      }
      if (scenario.fault == Fault::kPartition) WC_TRY(partition(*network, options.workers, true));
      paused = scenario.fault == Fault::kPause || scenario.fault == Fault::kPartition;
    }
    const double pause_s = scenario.fault == Fault::kPause ? kOriginStopped_s : kPartitioned_s;
    if (paused && elapsed_s >= *struck_at_s + pause_s) {
      paused = false;
      if (scenario.fault == Fault::kPause) fleet->process(0).signal(SIGCONT);
      if (scenario.fault == Fault::kPartition) WC_TRY(partition(*network, options.workers, false));
    }
    watch.sample(elapsed_s, struck_at_s, victims);
    return {};
  };
  WC_ASSIGN(const Broadcast broadcast, fleet->broadcast(Version{1}, payload, broadcast_options));

  FaultResult result;
  result.scenario = scenario.name;
  result.fault_at_s = scenario.fault == Fault::kNone || scenario.from_start ? 0 : fault_at_s;
  result.workers = options.workers;
  result.corrupted = liar ? liar->flipped() : 0;
  double last_s = 0;
  for (NodeIndex node = 1; node <= options.workers; ++node) {
    if (victims.contains(node)) continue;
    ++result.survivors;
    const auto& installed_s = broadcast.installed_s[node - 1];
    if (!installed_s) continue;
    ++result.finished;
    last_s = std::max(last_s, *installed_s);
    const std::uint64_t received = broadcast.received_bytes[node - 1];
    result.extra_bytes += received - std::min(received, payload.bytes);
    WC_TRY(check_installed(fleet->state(node), payload));
  }
  if (result.finished == result.survivors) result.survivors_s = last_s;
  if (struck_at_s) result.recovery_s = watch.recovery_s(*struck_at_s);
  for (const NodeIndex node : victims) result.victims.push_back(fleet->state(node).filename().string());
  return result;
}

nlohmann::json to_json(const std::vector<FaultResult>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const FaultResult& r : results) {
    list.push_back(WC_JSON_OF(r.scenario, r.victims, r.fault_at_s, r.baseline_s, r.survivors_s, r.delay_s(),
                              r.throughput_drop(), r.recovery_s, r.workers, r.survivors, r.finished, r.extra_bytes,
                              r.corrupted));
  }
  return {{"scenarios", std::move(list)}};
}

std::string faults_heading() {
  return fmt::format("{:<26} {:>8} {:>11} {:>8} {:>6} {:>10} {:>9} {:>12} {:>9}", "scenario", "fault_s", "survivors_s",
                     "delay_s", "drop", "recovery_s", "finished", "extra bytes", "corrupted");
}

std::string faults_line(const FaultResult& r) {
  const auto drop = r.throughput_drop();
  return fmt::format("{:<26} {:>8.2f} {:>11} {:>8} {:>6} {:>10} {:>9} {:>12} {:>9}", r.scenario, r.fault_at_s,
                     seconds_or_dash(r.survivors_s), seconds_or_dash(r.delay_s()),
                     drop ? fmt::format("{:.1f}%", 100 * *drop) : std::string("-"), seconds_or_dash(r.recovery_s),
                     fmt::format("{} of {}", r.finished, r.survivors), r.extra_bytes, r.corrupted);
}

/// Runs each scenario on a fleet of its own, by chain, after a run without a fault. Compares the survivors' snapshots
/// with the payload. Errors: those of the fleet; kCorrupt; kTimedOut (survivors do not finish).
Status run(const FaultsBenchOptions& options) {
  WC_ASSIGN(const LinkSpec links, options.links.parse());
  const auto wanted = [&](const Scenario& s) {
    if (options.scenarios.empty()) return options.flags.netns || !s.needs_hosts;
    return std::ranges::find(options.scenarios, s.name) != options.scenarios.end();
  };
  print_now(faults_heading());
  std::vector<FaultResult> results;
  const auto keep = [&](FaultResult result) {
    result.baseline_s = results.empty() ? result.survivors_s.value_or(0) : results.front().baseline_s;
    results.push_back(std::move(result));
    print_now(faults_line(results.back()));
  };
  constexpr Scenario kWithout{"no-fault", "", Victims::kNone, Fault::kNone, false};
  WC_ASSIGN(FaultResult baseline, measure(options, links, kWithout, 0));
  keep(std::move(baseline));
  for (const Scenario& scenario : kScenarios) {
    if (!wanted(scenario)) continue;
    WC_ASSIGN(FaultResult result, measure(options, links, scenario, kFaultAtShare * results.front().baseline_s));
    keep(std::move(result));
  }
  WC_TRY(write_json(options.flags.json_path, to_json(results)));
  for (const FaultResult& result : results) {
    if (result.survivors_s) continue;
    return fail(Errc::kTimedOut, Op::kInstall,
                fmt::format("{}: {} of {} survivors did", result.scenario, result.finished, result.survivors));
  }
  return {};
}

}  // namespace

void add_faults_command(CLI::App& app) {
  const auto [command, options] = add_bench<const FaultsBenchOptions>(
      app, "faults", "Broadcasts with a fault in their middle, against one without", run);
  std::vector<std::string> names;
  std::string footer = "Scenarios (those that need hosts of their own run with --netns):\n";
  for (const Scenario& scenario : kScenarios) {
    names.emplace_back(scenario.name);
    footer += fmt::format("  {:<26} {}\n", scenario.name, scenario.description);
  }
  command->footer(footer);
  command->add_option("--workers", options->workers, "Workers")->check(CLI::Range(std::size_t{2}, std::size_t{1000}));
  options->links.add_to(*command);
  command->add_option("--scenario", options->scenarios, "Only these")->delimiter(',')->check(CLI::IsMember(names));
  options->flags.add_to(*command);
}

}  // namespace weightcast::bench
