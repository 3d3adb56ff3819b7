#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tasks/registry.h"

namespace weightcast {

/// What a run says of groups of rollouts: the learner's buffer and its workers go by it.
struct GroupSettings {
  std::uint64_t seed = 0;
  std::uint64_t rollout_batch_size = 128;   ///< rollouts of one training step; a multiple of group_size
  std::uint64_t group_size = 16;            ///< rollouts of one group
  std::uint64_t group_size_redundancy = 0;  ///< rollouts that are begun beyond those; the first group_size count
  bool filter_equal_rewards = false;        ///< groups whose rewards are all equal are of no use: advantages of 0
  std::optional<std::uint64_t> max_staleness = 4;  ///< S, in training steps; absent: unlimited
  /// ROLL Flash's alpha: 1 + alpha batches are leased, buffered or trained on together, and a rollout lags by no more
  /// steps (rounded up). Of a batch, the fraction's share may lag by the last of those steps. 0: synchronous. Absent:
  /// as few as keep the learner busy (RolloutDemand), within max_staleness.
  std::optional<double> async_generation_ratio;

  bool operator==(const GroupSettings&) const = default;
};

/// What a run says of prompts and answers.
struct EpisodeSettings {
  std::string task = "arithmetic";
  TaskOptions task_options;  ///< keys task_options.NAME
  bool enable_thinking = false;
  double temperature = 1;
  double top_p = 1;
  std::uint64_t max_prompt_length = 512;
  std::uint64_t max_new_tokens = 16;  ///< of one turn
  std::uint64_t turns_max = 1;
  double episode_time_max = 600;  ///< seconds
  std::uint64_t publish_interval = 1;

  bool operator==(const EpisodeSettings&) const = default;
};

}  // namespace weightcast
