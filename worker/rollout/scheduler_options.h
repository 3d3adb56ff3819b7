#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/time.h"

namespace weightcast {

/// How rollouts are scheduled. The names are those of ROLL Flash (arXiv 2510.11345) and of configuration files.
struct SchedulerOptions {
  std::uint32_t engines = 1;
  std::uint32_t slots_per_engine = 64;      ///< requests that an engine decodes together
  std::uint32_t group_size = 16;            ///< rollouts of a group that count
  std::uint32_t group_size_redundancy = 0;  ///< started beyond those; the first group_size ones count

  /// A rollout lags by the learner's version less that under which it began. One that lags by more is stopped. Absent:
  /// no limit.
  std::optional<std::uint64_t> max_staleness = 4;
  std::optional<double> async_generation_ratio;  ///< rounded up, the same limit; 0: synchronous

  bool filter_equal_rewards = false;                     ///< drop groups whose rewards are all equal
  std::uint32_t attempts_max = 3;                        ///< of a rollout that fails or takes too long
  Duration rollout_time_max = std::chrono::minutes(30);  ///< from a rollout's begin to its end
};

/// Errors: kInvalidArgument, which names the option, its value and the range.
[[nodiscard]] Status validate(const SchedulerOptions& options);

}  // namespace weightcast
