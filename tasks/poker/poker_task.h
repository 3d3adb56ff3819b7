#pragma once

#include <cstdint>
#include <memory>

#include "tasks/poker/poker_rules.h"
#include "tasks/task.h"

namespace weightcast {

struct PokerOptions {
  PokerRule opponent = PokerRule::kPotOdds;
  std::uint32_t hands = 4;  ///< of an episode
};

/// Heads-up no-limit Texas hold'em against a player that follows a rule. Blinds are 1 and 2, both players begin each
/// hand with 100 chips, and positions alternate. The reward of a turn is what the policy has won in hands that ended in
/// it, in chips. What cannot be read or is not allowed counts as a check, or a fold where chips are asked for; the
/// observation after it says so, and how many there were. Success: more chips than at the beginning.
class PokerTask final : public Task {
 public:
  /// Errors: kInvalidArgument unless hands are 1 to 1000.
  [[nodiscard]] static Result<std::unique_ptr<Task>> make(const PokerOptions& options);

  std::string_view name() const override { return "poker"; }
  GroupBy group_by() const override { return GroupBy::kInitialState; }
  Result<Prompt> prompt(std::uint64_t index) const override;
  /// Plays `response`, a turn per line. Metadata: seed.
  Result<Score> score(const Metadata& metadata, std::string_view response) const override;
  std::unique_ptr<Environment> make_environment() const override;

 private:
  explicit PokerTask(PokerOptions options) : options_(options) {}

  PokerOptions options_;
};

}  // namespace weightcast
