#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/chat_message.h"
#include "base/result.h"
#include "trainer/tasks/poker/holdem_hand.h"
#include "trainer/tasks/poker/poker_rules.h"

namespace weightcast {

/// What a player of a PokerTable has to go by. It refers to the table, which does not change meanwhile.
struct PokerTurn {
  const HoldemHand& hand;                     ///< in which the player is to act
  double win_share = 0;                       ///< of the player's cards
  std::span<const ChatMessage> conversation;  ///< all that the player was told and has answered; the last is a question
  std::uint64_t seed = 0;                     ///< of the answer, for a player that draws
};

/// Who answers at a table. Stateless between calls: an answer follows from its turn. Any thread.
class PokerPlayer {
 public:
  virtual ~PokerPlayer() = default;
  /// A text for each turn, as a policy gives it: parse_poker_action() reads it. Errors: those of what it stands on.
  [[nodiscard]] virtual Result<std::vector<std::string>> answers(std::span<const PokerTurn> turns) const = 0;
};

class RulePlayer final : public PokerPlayer {
 public:
  explicit RulePlayer(PokerRule rule) : rule_(rule) {}
  Result<std::vector<std::string>> answers(std::span<const PokerTurn> turns) const override;

 private:
  PokerRule rule_;
};

}  // namespace weightcast
