#include "bench/idle/idle_bench.h"

#include <utility>

#include "base/json_of.h"
#include "bench/fleet/interrupt.h"
#include "bench/times.h"

namespace weightcast::bench {
namespace {

constexpr std::size_t kJoins = 5;
constexpr Duration kSettling = std::chrono::seconds(2);

}  // namespace

Result<IdleResult> run_idle_bench(const IdleBenchOptions& options) {
  const auto network = make_loopback_network(std::vector<LinkRates>(options.workers + kJoins + 1));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  WC_ASSIGN(const Payload payload, make_payload(scratch.path() / "model.safetensors", 64 * kKiB, 1));
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet,
            Fleet::start(*network, options.workers, options.flags.options(scratch.path())));
  WC_ASSIGN([[maybe_unused]] const Broadcast broadcast, fleet->broadcast(Version{1}, payload, {}));
  WC_TRY(sleep_for(kSettling));

  IdleResult result;
  result.workers = options.workers;
  result.seconds = to_seconds(options.duration);
  const auto origin_cpu_s = [&] { return fleet->process(0).usage().value_or(ProcessUsage{}).cpu_s; };
  const double origin_before_s = origin_cpu_s();
  const double all_before_s = fleet->cpu_s();
  WC_TRY(sleep_for(options.duration));
  const double origin_s = origin_cpu_s() - origin_before_s;
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

nlohmann::json to_json(const IdleResult& result) {
  return WC_JSON_OF(result.workers, result.seconds, result.origin_cpu_share, result.worker_cpu_share,
                    result.join_to_installed_s);
}

}  // namespace weightcast::bench
