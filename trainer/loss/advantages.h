#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/settings/words.h"

namespace weightcast {

/// How rewards become advantages. Within a group unless it says batch.
enum class AdvantageNorm {
  kStd,    ///< (r - mean) / (std + 1e-6), std with n - 1 (GRPO)
  kNone,   ///< r - mean (Dr. GRPO)
  kRloo,   ///< r - mean of the others
  kBatch,  ///< (r - mean) / (std + 1e-6) over all rewards, whatever their groups
};

constexpr Words<4> words_of(AdvantageNorm) { return {"std", "none", "rloo", "batch"}; }

/// One advantage per reward; `group_ids[i]` is the group of `rewards[i]`. A group of one, or of equal rewards, gives 0
/// exactly (kBatch: the batch). All are finite, as float too. Errors: kInvalidArgument, if the lengths differ or a
/// reward is not finite or above 1e30 in size. TrajectoryRules::kRewardMax and any KL that is taken off are far below
/// that.
[[nodiscard]] Result<std::vector<double>> advantages(std::span<const double> rewards,
                                                     std::span<const std::size_t> group_ids, AdvantageNorm norm);

}  // namespace weightcast
