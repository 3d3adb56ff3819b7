#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/settings/words.h"
#include "trainer/tasks/poker/poker_player.h"
#include "trainer/tasks/poker/poker_table.h"
#include "trainer/tasks/task.h"

namespace weightcast {

/// Where the policy sits, and so whether it has the button in the first hand.
enum class PokerPosition {
  kButton,  ///< as player 0, who has it
  kDrawn,   ///< as player 0 or 1, by the episode's seed
};
constexpr Words<2> words_of(PokerPosition) { return {"button", "drawn"}; }

struct PokerOptions : PokerTableOptions {
  PokerPosition position = PokerPosition::kButton;
  std::shared_ptr<const PokerPlayer> opponent;  ///< not null
};

/// Heads-up no-limit Texas hold'em against a player: a rule, or anybody who answers. The policy is a player of
/// a PokerTable. The reward of a turn is what the policy has won in hands that ended in it, in chips. Success: more
/// chips than at the beginning.
/// Errors: those of PokerTable::make(); kInvalidArgument if a position is to be drawn for a single hand, which may
/// end before the policy acts.
[[nodiscard]] Result<std::unique_ptr<Task>> make_poker_task(PokerOptions options);

}  // namespace weightcast
