#include <fmt/format.h>

#include "base/json_of.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/fleet/interrupt.h"
#include "bench/joins/stranger.h"
#include "transport/security/authority.h"

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

/// A publication, and one beside which a stranger troubles the origin.
struct FloodCase {
  double quiet_s = 0;  ///< T_bcast(1.0)
  double flooded_s = 0;
  Stranger::Counts stranger;  ///< during the flooded one
  double origin_cpu_quiet_s = 0;
  double origin_cpu_flooded_s = 0;

  [[nodiscard]] double ratio() const { return flooded_s / quiet_s; }
};

struct FloodBenchOptions {
  LinkFlags links;
  std::size_t workers = 3;
  Stranger::Options stranger{.half_open = 1000, .joins_per_s = 200};
  std::uint32_t repetitions = 3;
  FleetFlags flags;
};

/// By chain, with encrypted connections, after one publication that is not shown. Each time the quiet one and the
/// flooded one take turns at being first. Errors: those of the fleet; kTimedOut (a worker did not install a version).
Status run(const FloodBenchOptions& options) {
  WC_ASSIGN(const LinkSpec links, options.links.parse());
  std::vector<LinkRates> rates = links.rates(options.workers);
  rates.push_back({});  // the stranger's
  WC_ASSIGN(const std::unique_ptr<Network> network, options.flags.make_network(std::move(rates)));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  WC_ASSIGN(const WarmMemory warm, options.flags.warm_memory(2 * links.payload_bytes * (options.workers + 2)));
  FleetOptions fleet_options = options.flags.options(scratch.path());
  fleet_options.topology = Topology::kChain;
  fleet_options.encrypted = true;
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, options.workers, fleet_options));
  WC_ASSIGN(const Endpoint origin, Endpoint::parse(fleet->origin_address()));

  WC_ASSIGN(const std::filesystem::path others_file, make_other_cluster(scratch.path()));

  std::uint64_t version = 0;
  const auto publish = [&](double& seconds, double& origin_cpu_s) -> Status {
    ++version;
    WC_ASSIGN(const Payload payload, make_payload(scratch.path() / "model.safetensors", links.payload_bytes, version));
    const double before_s = fleet->usage(0).cpu_s;
    WC_ASSIGN(const Broadcast broadcast, fleet->broadcast(Version{version}, payload, {}));
    origin_cpu_s = fleet->usage(0).cpu_s - before_s;
    if (!broadcast.t100_s) return fail(Errc::kTimedOut, Op::kInstall, "a worker did not install it");
    seconds = *broadcast.t100_s;
    return {};
  };
  nlohmann::json cases = nlohmann::json::array();
  FloodCase first;
  WC_TRY(publish(first.quiet_s, first.origin_cpu_quiet_s));
  for (std::uint32_t i = 0; i < options.repetitions; ++i) {
    FloodCase c;
    for (const bool flooded : {i % 2 == 1, i % 2 == 0}) {
      if (!flooded) {
        WC_TRY(publish(c.quiet_s, c.origin_cpu_quiet_s));
        continue;
      }
      WC_ASSIGN(NodeKeys keys, wrong_keys(others_file, scratch.path()));
      const Stranger stranger(*network, options.workers + 1, origin, std::move(keys), options.stranger);
      WC_TRY(sleep_for(kWarmingUp));
      const Stranger::Counts before = stranger.counts();
      WC_TRY(publish(c.flooded_s, c.origin_cpu_flooded_s));
      const Stranger::Counts after = stranger.counts();
      c.stranger = {after.connections - before.connections, after.open, after.refused - before.refused};
    }
    print_now(
        fmt::format("quiet {:.3f} s, flooded {:.3f} s: {:.3f}; the origin took {:.2f} and {:.2f} CPU s; {} half-open "
                    "connections at the end and {} made, {} joins refused meanwhile",
                    c.quiet_s, c.flooded_s, c.ratio(), c.origin_cpu_quiet_s, c.origin_cpu_flooded_s, c.stranger.open,
                    c.stranger.connections, c.stranger.refused));
    cases.push_back(merged(WC_JSON_OF(c.quiet_s, c.flooded_s, c.ratio(), c.stranger.connections, c.origin_cpu_quiet_s,
                                      c.origin_cpu_flooded_s),
                           {{"half_open", c.stranger.open}, {"refused_joins", c.stranger.refused}}));
  }
  return write_json(options.flags.json_path, {{"cases", std::move(cases)}});
}

}  // namespace

void add_flood_command(CLI::App& app) {
  const auto [command, options] =
      add_bench<const FloodBenchOptions>(app, "flood", "What strangers at the origin's port cost a publication", run);
  options->links.add_to(*command);
  command->add_option("--workers", options->workers, "Workers")->check(CLI::Range(std::size_t{1}, std::size_t{100}));
  command->add_option("--half-open", options->stranger.half_open, "Connections that say nothing")
      ->check(CLI::Range(std::size_t{0}, std::size_t{10000}));
  command->add_option("--joins", options->stranger.joins_per_s, "Joins a second with another cluster's keys")
      ->check(CLI::Range(0.0, 10000.0));
  command->add_option("--repeat", options->repetitions, "Pairs of publications")->check(CLI::Range(1u, 1000u));
  options->flags.add_to(*command);
}

}  // namespace weightcast::bench
