#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "bench/fleet/fleet_flags.h"
#include "bench/joins/stranger.h"

namespace weightcast::bench {

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
  std::size_t workers = 3;
  LinkSpec links;
  Stranger::Options stranger{.half_open = 1000, .joins_per_s = 200};
  std::uint32_t repetitions = 3;
  FleetFlags flags;
};

/// By chain, with encrypted connections, after one publication that is not shown. Each time the quiet one and the
/// flooded one take turns at being first. Errors: those of the fleet; kTimedOut (a worker did not install a version).
[[nodiscard]] Result<std::vector<FloodCase>> run_flood_bench(const FloodBenchOptions& options,
                                                             const std::function<void(const FloodCase&)>& on_case);
[[nodiscard]] nlohmann::json to_json(const std::vector<FloodCase>& cases);

}  // namespace weightcast::bench
