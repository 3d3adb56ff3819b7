#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "bench/fleet/fleet_flags.h"

namespace weightcast::bench {

struct DeltaBenchOptions {
  std::uint64_t tensor_bytes = kGiB;
  std::size_t tensors = 64;
  std::vector<double> changed_shares = {0.001, 0.01, 0.05};  ///< of the cells, from version to version
  std::uint32_t steps = 7;                                   ///< that are measured, after three that are not
  double interval_s = 0;  ///< from the beginning of one step to that of the next, at least
  FleetFlags flags;
};

/// One step, from wc_publish_sparse() until the worker has told a program of the new version. Medians, and means of
/// processor time and bytes per step.
struct DeltaBenchCase {
  double changed_share = 0;
  std::uint64_t changed_cells = 0;
  std::uint64_t patch_bytes = 0;  ///< that the worker received
  double floor_s = 0;             ///< one thread of this process writes the same cells into memory that is as large
  double call_s = 0;              ///< until wc_publish_sparse() has returned
  double installed_s = 0;
  double origin_cpu_s = 0, worker_cpu_s = 0;
  std::uint64_t origin_written_bytes = 0, worker_written_bytes = 0;  ///< ProcessUsage::written_bytes
  std::optional<std::uint64_t> device_written_bytes;  ///< by the disk's own counters; absent where there are none

  [[nodiscard]] double ratio() const { return installed_s / floor_s; }
};

/// An origin and a worker as real processes on loopback without limits, which follow a trainer in this process. Each
/// case has a fleet of its own. The last version is compared with the trainer's. Errors: kCorrupt (it differs); those
/// of the fleet.
[[nodiscard]] Result<std::vector<DeltaBenchCase>> run_delta_bench(const DeltaBenchOptions& options);
[[nodiscard]] nlohmann::json to_json(const std::vector<DeltaBenchCase>& cases);

}  // namespace weightcast::bench
