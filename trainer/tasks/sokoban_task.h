#pragma once

#include "trainer/tasks/sokoban.h"
#include "trainer/tasks/task.h"

namespace weightcast {

struct SokobanOptions {
  SokobanLevelOptions level;
  SokobanRewards rewards;
  std::uint32_t actions_per_turn_max = 5;  ///< more in one answer are not carried out
  std::uint32_t steps_max = 120;           ///< of an episode; gym-sokoban's bound
};

/// Sokoban turn by turn: the policy sees the level and answers with directions. Those count that stand in its last
/// <answer>, or anywhere without one. An answer without a direction costs a step. Success: every box on a target.
/// Errors: kInvalidArgument, as make_sokoban_level(), or for a bound of zero.
[[nodiscard]] Result<std::unique_ptr<Task>> make_sokoban_task(const SokobanOptions& options);

/// The directions in a policy's answer, in their order: the words up, down, left and right, in any case.
[[nodiscard]] std::vector<SokobanAction> parse_sokoban_actions(std::string_view answer);

}  // namespace weightcast
