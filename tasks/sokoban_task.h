#pragma once

#include "tasks/sokoban.h"
#include "tasks/task.h"

namespace weightcast {

struct SokobanOptions {
  SokobanLevelOptions level;
  SokobanRewards rewards;
  std::uint32_t actions_per_turn_max = 5;  ///< more in one answer are not carried out
  std::uint32_t steps_max = 120;           ///< of an episode; gym-sokoban's bound
};

/// Sokoban turn by turn: the policy sees the level and answers with directions. Those count that stand in its last
/// <answer>, or anywhere without one. An answer without a direction costs a step. Success: every box on a target.
class SokobanTask final : public Task {
 public:
  /// Errors: kInvalidArgument, as make_sokoban_level(), or for a bound of zero.
  [[nodiscard]] static Result<std::unique_ptr<Task>> make(const SokobanOptions& options);

  std::string_view name() const override { return "sokoban"; }
  Result<Prompt> prompt(std::uint64_t index) const override;
  /// Plays `response`, a turn per line, in the level that the metadata give: the sum of its rewards. Metadata: level.
  Result<Score> score(const Metadata& metadata, std::string_view response) const override;
  /// The first turn of a shortest way. Absent for metadata without a level that can be solved.
  std::optional<std::string> solution(const Metadata& metadata) const override;
  std::unique_ptr<Environment> make_environment() const override;

 private:
  explicit SokobanTask(SokobanOptions options) : options_(options) {}

  SokobanOptions options_;
};

/// The directions in a policy's answer, in their order: the words up, down, left and right, in any case.
[[nodiscard]] std::vector<SokobanAction> parse_sokoban_actions(std::string_view answer);

}  // namespace weightcast
