#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "bench/fleet/fleet_flags.h"
#include "bench/plot/figure.h"

namespace weightcast::bench {

struct DeltaBenchOptions {
  std::vector<std::uint64_t> sizes_bytes = {kGiB, 2 * kGiB, 4 * kGiB};  ///< all tensors together
  std::uint64_t single_copy_bytes_min = 8 * kGiB;  ///< from this size on the worker has --single-copy
  std::size_t tensors = 64;
  std::vector<double> changed_shares = {0.001, 0.01, 0.05};  ///< of the cells, from version to version
  std::uint32_t steps = 7;                                   ///< that are measured, after six that are not
  double interval_s = 0;  ///< from the beginning of one step to that of the next, at least
  Rate link{};            ///< of either node, in both directions
  FleetFlags flags;
};

/// One step, from wc_publish_sparse() until the worker has told a program of the new version. Medians
/// of times, and means per step of processor time and bytes.
struct DeltaBenchCase {
  struct Node {
    double cpu_s = 0;                 ///< of all threads of the daemon
    std::uint64_t written_bytes = 0;  ///< ProcessUsage::written_bytes
  };

  std::uint64_t tensor_bytes = 0;
  bool single_copy = false;
  double changed_share = 0;
  std::uint64_t changed_cells = 0;
  std::uint64_t patch_bytes = 0;  ///< that the worker received
  double floor_s = 0;             ///< one thread of this process writes the same cells into mapped memory: apply()
  double link_s = 0;              ///< of the patch at the link's rate; 0 without a limit
  double call_s = 0;              ///< until that has returned
  double installed_s = 0;
  Node origin, worker;
  std::optional<std::uint64_t> device_written_bytes;  ///< by the disk's own counters, for all who use it

  [[nodiscard]] double gib() const { return double(tensor_bytes) / double(kGiB); }
};

/// A node's processor time in one step: a line through the cases of one size, by least squares.
struct CpuLine {
  double intercept_s = 0;
  double slope_s = 0;  ///< per changed cell
};
struct DeltaLines {
  std::uint64_t tensor_bytes = 0;
  CpuLine origin, worker;
};
/// For each size that has cases of more than one number of changed cells.
[[nodiscard]] std::vector<DeltaLines> cpu_lines(std::span<const DeltaBenchCase> cases);

/// An origin and a worker as real processes on this host, or on hosts of their own, which follow a trainer in this
/// process. Each case has a fleet of its own. The last version is compared with the trainer's. `observe` is called with
/// each case. Errors: kCorrupt (it differs); kTimedOut; those of the fleet.
[[nodiscard]] Result<std::vector<DeltaBenchCase>> run_delta_bench(
    const DeltaBenchOptions& options, const std::function<void(const DeltaBenchCase&)>& observe);
[[nodiscard]] nlohmann::json to_json(std::span<const DeltaBenchCase> cases);
/// Seconds of a step over the changed share: a panel for each size.
[[nodiscard]] Figure delta_figure(std::span<const DeltaBenchCase> cases);

/// The table on a terminal.
[[nodiscard]] std::string delta_heading();
[[nodiscard]] std::string delta_line(const DeltaBenchCase& one);

}  // namespace weightcast::bench
