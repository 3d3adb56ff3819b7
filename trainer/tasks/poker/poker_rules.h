#pragma once

#include "base/settings/words.h"
#include "trainer/tasks/poker/holdem_hand.h"

namespace weightcast {

/// Players that follow a rule.
enum class PokerRule {
  kTightPassive,     ///< calls with a win share from 0.6 on, and never raises
  kLooseAggressive,  ///< raises by the pot from 0.45 on, and calls from 0.3 on
  kPotOdds,          ///< calls where that pays on average, and raises by half the pot from 0.7 on
};
constexpr Words<3> words_of(PokerRule) { return {"tight_passive", "loose_aggressive", "pot_odds"}; }

/// What a player of that rule does, who has the given win share. Always possible. It checks where it would fold.
[[nodiscard]] HoldemAction rule_action(PokerRule rule, const HoldemChoice& choice, Chips pot, double win_share);

}  // namespace weightcast
