#pragma once

#include <nlohmann/json.hpp>

#include "bench/fleet/fleet_flags.h"

namespace weightcast::bench {

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
  Duration duration = std::chrono::seconds(10);
  FleetFlags flags;
};

/// On loopback. Errors: those of the fleet.
[[nodiscard]] Result<IdleResult> run_idle_bench(const IdleBenchOptions& options);
[[nodiscard]] nlohmann::json to_json(const IdleResult& result);

}  // namespace weightcast::bench
