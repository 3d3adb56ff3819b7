#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/result.h"

namespace weightcast::bench {

struct OptimiserBenchOptions {
  std::uint64_t cells = std::uint64_t{64} << 20;  ///< in 16 tensors
  unsigned threads = 1;
  double learning_rate = 1e-6;
  bool bf16_gradients = false;
  std::uint32_t repetitions = 7;
};

/// One update of BF16 weights with their FP32 state, beside a plain loop over the same memory. Medians of wall-clock
/// time over the repetitions, which take turns.
struct OptimiserBenchResult {
  /// What an update cannot avoid: 7 reads and writes of 4 bytes per cell. BF16 weights, their comparison, and the
  /// norm's read of the gradients come on top.
  static constexpr std::uint64_t kFloorBytesPerCell = 28;

  std::uint64_t cells = 0;
  double stream_s = 0;      ///< the floor: a loop that reads four arrays and writes three
  double update_s = 0;      ///< norm, clipping, update, rounding, comparison
  double stream_cpu_s = 0;  ///< of all threads, as update_cpu_s: what other work on the machine distorts less
  double update_cpu_s = 0;
  double take_changes_s = 0;  ///< the changed cells of one update as lists
  double changed_share = 0;   ///< of the cells, in the last update

  [[nodiscard]] double gb_per_s(double seconds) const {
    return 1e-9 * static_cast<double>(cells * kFloorBytesPerCell) / seconds;
  }
  [[nodiscard]] double ratio() const { return update_s / stream_s; }
  [[nodiscard]] double cpu_ratio() const { return update_cpu_s / stream_cpu_s; }
};

/// Errors: kInvalidArgument (no cells); kCorrupt (the weights are not the last ones with the changed cells put in).
[[nodiscard]] Result<OptimiserBenchResult> run_optimiser_bench(const OptimiserBenchOptions& options);
[[nodiscard]] nlohmann::json to_json(const OptimiserBenchResult& result);

}  // namespace weightcast::bench
