#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weightcast {

inline constexpr std::size_t kBatchRolloutsMax = 4096;
inline constexpr std::size_t kRunIdBytesMax = 255;

/// The rollouts of one POST, for the run with that id; "": whichever the learner has. They are views of the body, which
/// outlives the batch: each is decoded by itself, so the memory for a batch is its body and one rollout.
struct RolloutBatch {
  std::string run;
  std::vector<std::string_view> rollouts;
};

/// Finds the rollouts of `{"run": "...", "rollouts": [...]}`, where `run` and further members may be absent; each is
/// for read_trajectory(). Errors: kCorrupt (no such object), kTooLarge (more than kBatchRolloutsMax, or a text, a
/// number or a gap between them that is longer than a rollout's may be).
[[nodiscard]] Result<RolloutBatch> split_json_batch(std::string_view text);

}  // namespace weightcast
