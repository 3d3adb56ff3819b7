#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trainer/tasks/trajectory/rollout_batch.h"
#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {

/// proto/rollout.proto's Trajectory. It says all that the struct does.
[[nodiscard]] std::string encode_trajectory(const Trajectory& trajectory);
/// Takes memory for what is within `limits` alone. Errors: kCorrupt, kTooLarge. Whether the values make sense is
/// check_trajectory()'s to say.
[[nodiscard]] Result<Trajectory> decode_trajectory(std::string_view bytes, const TrajectoryLimits& limits = {});

/// proto/rollout.proto's Batch of rollouts that encode_trajectory() has encoded.
[[nodiscard]] std::string encode_batch(std::string_view run, std::span<const std::string> rollouts);
/// Finds the rollouts of a Batch; each is for decode_trajectory(). Errors: kCorrupt, kTooLarge (more than
/// kBatchRolloutsMax).
[[nodiscard]] Result<RolloutBatch> split_batch(std::string_view bytes);

}  // namespace weightcast
