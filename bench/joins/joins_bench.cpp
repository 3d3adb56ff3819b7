#include <fmt/format.h>

#include <algorithm>

#include "base/json_of.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/joins/crowd.h"

namespace weightcast::bench {
namespace {

/// Workers that join a running origin at the same moment, over encrypted connections on loopback. All of the workers'
/// ends are on one thread, so the time has their share of the handshakes in it, too.
struct JoinsResult {
  std::size_t workers = 0;
  double first_s = 0;      ///< from the first dial until the last is in; nobody has met before
  double again_s = 0;      ///< the same for all of them with a ticket
  double first_cpu_s = 0;  ///< of both ends
  double again_cpu_s = 0;
  double origin_bytes_per_worker = 0;  ///< anonymous memory that the origin took for each idle worker
};

struct JoinsBenchOptions {
  std::size_t workers = 500;
  FleetFlags flags;
};

/// Errors: those of the fleet; what the origin said to a worker that it turned away.
Result<JoinsResult> measure(const JoinsBenchOptions& options) {
  const auto network = make_loopback_network(std::vector<LinkRates>(1));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  FleetOptions fleet_options = options.flags.options(scratch.path());
  fleet_options.encrypted = true;
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, 0, fleet_options));
  WC_ASSIGN(const std::unique_ptr<Crowd> crowd, Crowd::make(scratch.path() / "keys", options.workers));
  WC_ASSIGN(const Endpoint origin, Endpoint::parse(fleet->origin_address()));

  JoinsResult result;
  result.workers = options.workers;
  const ProcessUsage before = fleet->usage(0);
  WC_ASSIGN(const Crowd::Joined first, crowd->join(origin));
  result.first_s = first.seconds;
  result.first_cpu_s = first.cpu_s + fleet->usage(0).cpu_s - before.cpu_s;
  WC_TRY(crowd->idle(std::chrono::seconds(8)));  // before memory is looked at
  const std::uint64_t idle_bytes = fleet->usage(0).rss_anon_bytes;
  result.origin_bytes_per_worker =
      double(idle_bytes - std::min(idle_bytes, before.rss_anon_bytes)) / double(options.workers);
  crowd->leave();
  const double cpu_before_s = fleet->usage(0).cpu_s;
  WC_ASSIGN(const Crowd::Joined again, crowd->join(origin));
  result.again_s = again.seconds;
  result.again_cpu_s = again.cpu_s + fleet->usage(0).cpu_s - cpu_before_s;
  return result;
}

Status run(const JoinsBenchOptions& options) {
  WC_ASSIGN(const JoinsResult result, measure(options));
  fmt::print(
      "{} workers join at once: all in after {:.3f} s ({:.2f} CPU s of both ends); again, with tickets, after {:.3f} s "
      "({:.2f} CPU s)\n",
      result.workers, result.first_s, result.first_cpu_s, result.again_s, result.again_cpu_s);
  fmt::print("memory of the origin for each idle worker: {:.1f} KiB\n", result.origin_bytes_per_worker / kKiB);
  return write_json(options.flags.json_path,
                    WC_JSON_OF(result.workers, result.first_s, result.again_s, result.first_cpu_s, result.again_cpu_s,
                               result.origin_bytes_per_worker));
}

}  // namespace

void add_joins_command(CLI::App& app) {
  const auto [command, options] = add_bench<const JoinsBenchOptions>(
      app, "joins", "Many workers that join at once, and what each takes of the origin", run);
  command->add_option("--workers", options->workers, "Workers, all on loopback")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}));
  options->flags.add_to(*command);
}

}  // namespace weightcast::bench
