#include "trainer/tasks/poker/poker_player.h"

#include "trainer/tasks/poker/poker_text.h"

namespace weightcast {

Result<std::vector<std::string>> RulePlayer::answers(std::span<const PokerTurn> turns) const {
  std::vector<std::string> texts;
  for (const PokerTurn& turn : turns) {
    const HoldemChoice choice = turn.hand.choice();
    texts.push_back(poker_action_text(rule_action(rule_, choice, turn.hand.pot(), turn.win_share), choice));
  }
  return texts;
}

}  // namespace weightcast
