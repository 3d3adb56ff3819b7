#pragma once

#include <chrono>

#include "bench/rollout/rollout_world.h"
#include "trainer/replay/replay_options.h"

namespace weightcast::bench {

/// A world is not simulated for longer.
inline constexpr Duration kWorldTimeMax = std::chrono::hours(24 * 365 * 10);

/// Errors: kInvalidArgument, which names the option, its value and the range.
[[nodiscard]] Status validate(const RolloutWorldOptions& options);

/// The options and the rules of the buffer in such a world.
[[nodiscard]] ReplayOptions replay_options(const RolloutWorldOptions& options);
[[nodiscard]] TrajectoryRules trajectory_rules();

}  // namespace weightcast::bench
