#pragma once

#include <nlohmann/json.hpp>

#include "bench/fleet/fleet_flags.h"

namespace weightcast::bench {

/// What publishing from memory, by fill in place, costs a trainer.
struct PublishBenchResult {
  std::uint64_t tensor_bytes = 0;
  std::size_t tensors = 0;
  // Medians over the repetitions, which take turns. Each is wall-clock time of one thread, with memory that
  // wc_reserve() took ahead of time.
  double copy_s = 0;    ///< the floor: memcpy of every tensor into memory of this process that has been touched before
  double begin_s = 0;   ///< wc_begin()
  double fill_s = 0;    ///< memcpy of every tensor to its place
  double commit_s = 0;  ///< wc_commit()
  double taken_s = 0;   ///< from wc_begin() until the origin had its own copy; the trainer does not wait
  double calls_s_max = 0;  ///< the longest begin and commit together
  /// The most memory of this process beyond the tensors, seen after each step.
  std::uint64_t extra_bytes = 0;

  [[nodiscard]] double ratio() const { return (begin_s + fill_s + commit_s) / copy_s; }
};

struct PublishBenchOptions {
  std::uint64_t tensor_bytes = kGiB;
  std::size_t tensors = 64;
  std::uint32_t repetitions = 5;
  FleetFlags flags;
};

/// An origin without workers, on loopback. Errors: kInvalidArgument (less than an element per tensor); those of the
/// fleet and of the library.
[[nodiscard]] Result<PublishBenchResult> run_publish_bench(const PublishBenchOptions& options);
[[nodiscard]] nlohmann::json to_json(const PublishBenchResult& result);

}  // namespace weightcast::bench
