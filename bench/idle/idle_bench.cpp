#include <fmt/format.h>

#include <utility>

#include "base/json_of.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/fleet/interrupt.h"
#include "bench/times.h"

namespace weightcast::bench {
namespace {

constexpr std::size_t kJoins = 5;
constexpr Duration kSettling = std::chrono::seconds(2);

/// What a fleet costs that has nothing to do.
struct IdleResult {
  std::size_t workers = 0;
  double seconds = 0;
  double origin_cpu_share = 0;  ///< of one core
  double worker_cpu_share = 0;  ///< mean
  /// From the start of a further worker's process until it has installed a version of 64 KiB: an upper bound of the
  /// time from joining to the first byte. Median of several.
  double join_to_installed_s = 0;
};

struct IdleBenchOptions {
  std::size_t workers = 200;
  double seconds = 10;
  FleetFlags flags;
};

/// On loopback. Errors: those of the fleet.
Result<IdleResult> measure(const IdleBenchOptions& options) {
  const auto network = make_loopback_network(std::vector<LinkRates>(options.workers + kJoins + 1));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  WC_ASSIGN(const Payload payload, make_payload(scratch.path() / "model.safetensors", 64 * kKiB, 1));
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet,
            Fleet::start(*network, options.workers, options.flags.options(scratch.path())));
  WC_ASSIGN([[maybe_unused]] const Broadcast broadcast, fleet->broadcast(Version{1}, payload, {}));
  WC_TRY(sleep_for(kSettling));

  IdleResult result;
  result.workers = options.workers;
  result.seconds = options.seconds;
  const double origin_before_s = fleet->usage(0).cpu_s;
  const double all_before_s = fleet->cpu_s();
  WC_TRY(sleep_for(from_seconds(options.seconds)));
  const double origin_s = fleet->usage(0).cpu_s - origin_before_s;
  const double workers_s = fleet->cpu_s() - all_before_s - origin_s;
  result.origin_cpu_share = origin_s / result.seconds;
  result.worker_cpu_share = workers_s / double(options.workers) / result.seconds;

  std::vector<double> joins;
  for (std::size_t i = 0; i < kJoins; ++i) {
    WC_ASSIGN(joins.emplace_back(), fleet->add_worker(Version{1}));
  }
  result.join_to_installed_s = median(std::move(joins));
  return result;
}

Status run(const IdleBenchOptions& options) {
  WC_ASSIGN(const IdleResult result, measure(options));
  fmt::print("{} idle workers for {:.1f} s: the origin used {:.2f} % of a core, each worker {:.3f} %\n", result.workers,
             result.seconds, 100 * result.origin_cpu_share, 100 * result.worker_cpu_share);
  fmt::print("one more worker: from its start until it had installed 64 KiB, {:.1f} ms\n",
             1e3 * result.join_to_installed_s);
  return write_json(options.flags.json_path, WC_JSON_OF(result.workers, result.seconds, result.origin_cpu_share,
                                                        result.worker_cpu_share, result.join_to_installed_s));
}

}  // namespace

void add_idle_command(CLI::App& app) {
  const auto [command, options] = add_bench<const IdleBenchOptions>(
      app, "idle", "What a fleet costs that has nothing to do, and how fast one joins", run);
  command->add_option("--workers", options->workers, "Workers, all on loopback")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1000}));
  command->add_option("--seconds", options->seconds, "How long to look")->check(CLI::Range(0.1, 3600.0));
  options->flags.add_to(*command);
}

}  // namespace weightcast::bench
