#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace weightcast::bench {

struct ThreadsBenchOptions {
  std::uint64_t tensor_bytes = kGiB;
  std::size_t tensors = 64;
  double changed_share = 0.01;                ///< of the cells, from version to version
  std::vector<unsigned> threads = {1, 2, 4};  ///< the first is what the others are compared with
  std::uint32_t repetitions = 3;
};

/// What stays proportional to the model, by so many threads. Medians over the repetitions, which take turns.
struct ThreadsBenchCase {
  unsigned threads = 0;
  double copy_s = 0;       ///< the floor: the tensors copied in memory by so many threads
  double take_over_s = 0;  ///< a whole snapshot, until the origin has its own copy
  double scan_s = 0;       ///< the floor of what follows: two copies of the tensors compared in memory
  double compare_s = 0;    ///< a whole snapshot of which little has changed: the origin's copy, and the patch to it
  double pack_s = 0;       ///< the packed payload
  double unpack_s = 0;     ///< at a worker, from its first chunk to the switch
};

/// An origin's and a worker's parts in this process, each with a loop and a store, without sockets. Each version is
/// compared with what it should be. Errors: kCorrupt (it differs); those of the stores and of the scratch directory.
[[nodiscard]] Result<std::vector<ThreadsBenchCase>> run_threads_bench(const ThreadsBenchOptions& options);
[[nodiscard]] nlohmann::json to_json(const std::vector<ThreadsBenchCase>& cases);

}  // namespace weightcast::bench
