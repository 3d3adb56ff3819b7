#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/chat_message.h"
#include "base/result.h"
#include "base/settings/words.h"
#include "trainer/tasks/poker/holdem_hand.h"
#include "trainer/tasks/poker/poker_player.h"

namespace weightcast {

/// What a player's first question has.
enum class PokerPrompt {
  kRules,  ///< the rules, and what the player sees
  kState,  ///< what the player sees, alone
};
constexpr Words<2> words_of(PokerPrompt) { return {"rules", "state"}; }

struct PokerTableOptions {
  std::uint32_t hands = 4;
  PokerPrompt prompt = PokerPrompt::kRules;
};

/// Two players, 0 and 1, who play hands of heads-up no-limit hold'em by texts. Blinds are 1 and 2, both begin each hand
/// with 100 chips, player 0 has the button in the first hand, and positions alternate. What cannot be read or is not
/// allowed counts as a check, or a fold where chips are asked for, and the next question says so. Pure. Cards and
/// turn().seed follow from the seed alone, not from who sits there: with the two players exchanged each deal is played
/// again with the cards exchanged. Invariant: unless it is over, the conversation of to_act() ends with a question.
class PokerTable {
 public:
  /// Errors: kInvalidArgument unless hands are 1 to 1000.
  [[nodiscard]] static Result<PokerTable> make(std::uint64_t seed, const PokerTableOptions& options);

  [[nodiscard]] bool is_over() const { return is_over_; }
  /// Who is to act, and on what. Only while it is not over. The turn is valid until the next answer.
  [[nodiscard]] unsigned to_act() const { return hand_->to_act(); }
  [[nodiscard]] PokerTurn turn() const;
  /// The player who is to act says `text`. Errors: kInvalidArgument if it is over.
  [[nodiscard]] Status handle_answer(std::string_view text);

  /// Questions ("user") and answers ("assistant") of `player`.
  [[nodiscard]] std::span<const ChatMessage> conversation(unsigned player) const { return conversations_[player]; }
  /// What `player` has won in the hands that are over, in chips; below 0: lost.
  [[nodiscard]] std::int64_t won(unsigned player) const { return player == 0 ? won_ : -won_; }
  /// Answers of `player`, and those of them that were no action that is allowed.
  [[nodiscard]] std::uint32_t answered(unsigned player) const { return answered_[player]; }
  [[nodiscard]] std::uint32_t refused(unsigned player) const { return refused_[player]; }

 private:
  PokerTable(std::uint64_t seed, const PokerTableOptions& options) : seed_(seed), options_(options) {}

  /// Deals until somebody is to act, or all hands are over, and asks.
  [[nodiscard]] Status go_on();
  [[nodiscard]] Status deal();

  std::uint64_t seed_;
  PokerTableOptions options_;
  std::optional<HoldemHand> hand_;
  double win_share_ = 0;     // of who is to act
  std::uint32_t hands_ = 0;  // that have been dealt
  std::int64_t won_ = 0;     // by player 0
  bool is_over_ = false;
  std::array<std::uint32_t, 2> answered_{}, refused_{};
  std::array<std::string, 2> notices_;  // that go before the player's next question
  std::array<std::vector<ChatMessage>, 2> conversations_;
};

}  // namespace weightcast
