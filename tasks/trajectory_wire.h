#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tasks/trajectory.h"

namespace weightcast {

/// Rollouts of one POST, for the run with that id; "": whichever the learner has.
struct RolloutBatch {
  std::string run;
  std::vector<Trajectory> rollouts;
};

inline constexpr std::size_t kBatchRolloutsMax = 4096;

/// proto/rollout.proto's Trajectory. It says all that the struct does.
[[nodiscard]] std::string encode_trajectory(const Trajectory& trajectory);
/// Errors: kCorrupt. Whether the values make sense is check_trajectory()'s to say.
[[nodiscard]] Result<Trajectory> decode_trajectory(std::string_view bytes);

/// proto/rollout.proto's Batch of rollouts that encode_trajectory() has encoded.
[[nodiscard]] std::string encode_batch(std::string_view run, std::span<const std::string> rollouts);
/// Errors: kCorrupt, kTooLarge (more than kBatchRolloutsMax).
[[nodiscard]] Result<RolloutBatch> decode_batch(std::string_view bytes);

}  // namespace weightcast
