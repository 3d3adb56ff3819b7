#include "bench/joins/flood_bench.h"

#include "base/json_of.h"
#include "bench/fleet/interrupt.h"
#include "security/authority.h"

namespace weightcast::bench {
namespace {

// A flood that has just begun is not yet what it will be.
constexpr Duration kWarmingUp = std::chrono::seconds(3);

/// The file of a worker of another cluster.
Result<std::filesystem::path> make_other_cluster(const std::filesystem::path& scratch) {
  const std::int64_t now = unix_now_s();
  WC_ASSIGN(Authority other, Authority::init(scratch / "other-keys", "other", 1, now));
  return other.issue("stranger", 1, false, now);
}

Result<NodeKeys> wrong_keys(const std::filesystem::path& file, const std::filesystem::path& scratch) {
  const std::int64_t now = unix_now_s();
  WC_ASSIGN(NodeKeys keys, read_node_keys(file, now));
  WC_ASSIGN(NodeKeys origin, read_node_keys(scratch / "keys" / "origin.pem", now));
  keys.authority = std::move(origin.authority);
  return keys;
}

}  // namespace

Result<std::vector<FloodCase>> run_flood_bench(const FloodBenchOptions& options,
                                               const std::function<void(const FloodCase&)>& on_case) {
  std::vector<LinkRates> rates = options.links.rates(options.workers);
  rates.push_back({});  // the stranger's
  WC_ASSIGN(const std::unique_ptr<Network> network, options.flags.make_network(std::move(rates)));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  WC_ASSIGN(const WarmMemory warm, options.flags.warm_memory(2 * options.links.payload_bytes * (options.workers + 2)));
  FleetOptions fleet_options = options.flags.options(scratch.path());
  fleet_options.topology = Topology::kChain;
  fleet_options.encrypted = true;
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, options.workers, fleet_options));
  WC_ASSIGN(const nlohmann::json status, fleet->status());
  WC_ASSIGN(const Endpoint origin, Endpoint::parse(status.at("nodes")[0].at("address").get<std::string>()));

  WC_ASSIGN(const std::filesystem::path others_file, make_other_cluster(scratch.path()));

  std::uint64_t version = 0;
  const auto publish = [&](double& seconds, double& origin_cpu_s) -> Status {
    ++version;
    WC_ASSIGN(const Payload payload,
              make_payload(scratch.path() / "model.safetensors", options.links.payload_bytes, version));
    const auto cpu_s = [&] { return fleet->process(0).usage().value_or(ProcessUsage{}).cpu_s; };
    const double before_s = cpu_s();
    WC_ASSIGN(const Broadcast broadcast, fleet->broadcast(Version{version}, payload, {}));
    origin_cpu_s = cpu_s() - before_s;
    const auto all_s = broadcast.t_s(1.0);
    if (!all_s) return fail(Errc::kTimedOut, Op::kInstall, "a worker did not install it");
    seconds = *all_s;
    return {};
  };
  std::vector<FloodCase> cases;
  FloodCase first;
  WC_TRY(publish(first.quiet_s, first.origin_cpu_quiet_s));
  for (std::uint32_t i = 0; i < options.repetitions; ++i) {
    FloodCase measured;
    for (const bool flooded : {i % 2 == 1, i % 2 == 0}) {
      if (!flooded) {
        WC_TRY(publish(measured.quiet_s, measured.origin_cpu_quiet_s));
        continue;
      }
      WC_ASSIGN(NodeKeys keys, wrong_keys(others_file, scratch.path()));
      const Stranger stranger(*network, options.workers + 1, origin, std::move(keys), options.stranger);
      WC_TRY(sleep_for(kWarmingUp));
      const Stranger::Counts before = stranger.counts();
      WC_TRY(publish(measured.flooded_s, measured.origin_cpu_flooded_s));
      const Stranger::Counts after = stranger.counts();
      measured.stranger = {after.connections - before.connections, after.open, after.refused - before.refused};
    }
    cases.push_back(measured);
    on_case(measured);
  }
  return cases;
}

nlohmann::json to_json(const std::vector<FloodCase>& cases) {
  nlohmann::json list = nlohmann::json::array();
  for (const FloodCase& c : cases) {
    list.push_back(merged(WC_JSON_OF(c.quiet_s, c.flooded_s, c.ratio(), c.stranger.connections, c.origin_cpu_quiet_s,
                                     c.origin_cpu_flooded_s),
                          {{"half_open", c.stranger.open}, {"refused_joins", c.stranger.refused}}));
  }
  return {{"cases", std::move(list)}};
}

}  // namespace weightcast::bench
