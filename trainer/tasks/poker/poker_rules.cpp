#include "trainer/tasks/poker/poker_rules.h"

#include <algorithm>

namespace weightcast {
namespace {

HoldemAction call() { return {HoldemAction::Kind::kCheckOrCall, 0}; }

HoldemAction check_or_fold(const HoldemChoice& choice) {
  return choice.to_call == 0 ? call() : HoldemAction{HoldemAction::Kind::kFold, 0};
}

/// A raise by `chips`, as near as may be; a call where none is possible.
HoldemAction raise_by(const HoldemChoice& choice, Chips chips) {
  if (!choice.raise) return call();
  return {HoldemAction::Kind::kRaise, std::min(choice.raise->least + chips, choice.raise->most)};
}

}  // namespace

HoldemAction rule_action(PokerRule rule, const HoldemChoice& choice, Chips pot, double win_share) {
  switch (rule) {
    case PokerRule::kTightPassive: return win_share >= 0.6 ? call() : check_or_fold(choice);
    case PokerRule::kLooseAggressive:
      if (win_share >= 0.45) return raise_by(choice, pot);
      return win_share >= 0.3 ? call() : check_or_fold(choice);
    case PokerRule::kPotOdds: break;
  }
  if (win_share >= 0.7) return raise_by(choice, pot / 2);
  const double price = static_cast<double>(choice.to_call) / static_cast<double>(pot + choice.to_call);
  return win_share >= price ? call() : check_or_fold(choice);
}

}  // namespace weightcast
