#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer/tasks/poker/holdem_hand.h"

namespace weightcast {

/// What the player who acts sees: "Hand: [Ah, Kd], Board: [Qs, Th, 2c], Pot: 100, To call: 20, Stack: 40, Odds: 0.55",
/// and what that player may do. `win_share` are the odds.
[[nodiscard]] std::string poker_observation(const HoldemHand& hand, double win_share);

/// What a policy's answer does: the last "Action: ..." in it, of Fold, Check, Call, Bet N, Raise N and All-in, in any
/// case. N is the whole bet of the round. Absent if there is none, or `choice` does not allow it: a call without a bet
/// and a check against one, too.
[[nodiscard]] std::optional<HoldemAction> parse_poker_action(std::string_view answer, const HoldemChoice& choice);

/// The answer that does `action`, which `choice` allows: parse_poker_action() gives it back. "Action: All-in" for a
/// raise to the most.
[[nodiscard]] std::string poker_action_text(const HoldemAction& action, const HoldemChoice& choice);

}  // namespace weightcast
