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
  /// ROLL Flash's alpha: 1 + alpha batches are leased, buffered or trained on together, and a rollout lags by no more
  /// steps (rounded up). Of a batch, the fraction's share may lag by the last of those steps. 0: synchronous. Absent:
  /// as few as keep the learner busy (RolloutDemand), within max_staleness.
  std::optional<double> async_generation_ratio;
  /// Groups that are leased beyond those: they stand in for groups that are filtered, slow or lost.
  std::uint64_t max_additional_running_prompts = 0;
  /// The same, counted with those of a batch; 0: none. The larger of both holds.
  std::uint64_t num_env_groups = 0;
  std::uint64_t group_size_redundancy = 0;  ///< rollouts of a lease beyond group_size
  /// Admit what was leased to its worker, and nothing else. false: sources without leases, such as files.
  bool leased_only = false;
  SampleOrder order = SampleOrder::kOldestFirst;
  bool filter_equal_rewards = false;  ///< drop groups whose rewards are all equal: their advantages are zero
  std::uint64_t rollouts_max = 4096;
  std::uint64_t bytes_max = std::uint64_t{1} << 30;
  Duration group_time_max = std::chrono::minutes(30);  ///< from a group's first rollout until it is given up
  Duration lease_time_max = std::chrono::minutes(30);  ///< from a lease until it is taken for lost
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
