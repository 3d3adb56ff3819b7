#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "base/units.h"
#include "bench/publish/bench_origin.h"

namespace weightcast::bench {

struct SparseBenchOptions {
  std::uint64_t tensor_bytes = kGiB;
  std::size_t tensors = 64;
  double changed_share = 0.01;  ///< of the cells, from version to version
  std::uint32_t repetitions = 5;
};

/// The cost of one step at an origin, as a whole snapshot and as changes. Medians over the repetitions, which take
/// turns; wall-clock time from the beginning of the take-over, and processor time of all its threads. Each origin gets
/// every step.
struct SparseBenchResult {
  std::uint64_t tensor_bytes = 0;
  std::uint64_t changes_bytes = 0;  ///< that the trainer hands over
  std::uint64_t patch_bytes = 0;
  PublicationCost whole, sparse;
  std::uint32_t in_place = 0;  ///< repetitions in which the spare files were brought up to date where they are
  double memory_floor_s = 0;   ///< one copy of the tensors in memory, by one thread

  [[nodiscard]] double ratio() const { return sparse.encoded_s / whole.encoded_s; }
};

/// An origin's store, take-over and encoder in this process, without daemons and workers, on BF16 weights. Each version
/// is compared with what it should be. Errors: kCorrupt (it differs); those of the store and of the scratch directory.
[[nodiscard]] Result<SparseBenchResult> run_sparse_bench(const SparseBenchOptions& options);
[[nodiscard]] nlohmann::json to_json(const SparseBenchResult& result);

}  // namespace weightcast::bench
