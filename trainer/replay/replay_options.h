#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "tasks/trajectory.h"

namespace weightcast {

/// Which complete groups a batch takes first. Age is that of a group's oldest version, then of its completion.
enum class SampleOrder { kOldestFirst, kNewestFirst, kUniform };

struct ReplayOptions {
  std::uint64_t rollout_batch_size = 128;          ///< rollouts of one training step; a multiple of group_size
  std::uint64_t group_size = 16;                   ///< rollouts of one group
  std::optional<std::uint64_t> max_staleness = 4;  ///< S, in training steps; absent: unlimited
  /// How many batches may be started beyond the one in need, and by how many steps (rounded up) a rollout may lag. Of a
  /// batch, the fraction's share may lag by the last of those steps. 0: synchronous. Absent: unlimited.
  std::optional<double> async_generation_ratio;
  SampleOrder order = SampleOrder::kOldestFirst;
  bool filter_equal_rewards = false;  ///< drop groups whose rewards are all equal: their advantages are zero
  std::uint64_t rollouts_max = 4096;
  std::uint64_t bytes_max = std::uint64_t{1} << 30;
  Duration group_time_max = std::chrono::minutes(30);  ///< from a group's first rollout until it is given up
  Duration start_time_max = std::chrono::minutes(30);  ///< from a start until the rollout is taken for lost
  std::uint64_t workers_max = 100'000;
  std::uint64_t gaps_per_worker_max = 1024;
  std::uint64_t closed_groups_max = 1'000'000;
  std::uint64_t seed = 0;  ///< of kUniform
};

/// Errors: kInvalidArgument, which names the option, its value and the range. `rules` give the largest rollout: one
/// batch of those must fit.
[[nodiscard]] Status validate(const ReplayOptions& options, const TrajectoryRules& rules);

/// Errors: kInvalidArgument, with the nearest of oldest_first, newest_first and uniform.
[[nodiscard]] Result<SampleOrder> parse_sample_order(std::string_view text);

}  // namespace weightcast
