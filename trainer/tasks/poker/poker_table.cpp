#include "trainer/tasks/poker/poker_table.h"

#include <fmt/format.h>

#include "base/draws.h"
#include "trainer/tasks/poker/poker_text.h"
#include "trainer/tasks/poker/win_share.h"

namespace weightcast {
namespace {

constexpr unsigned kWinShareSamples = 200;  // within 0.04 of the truth
constexpr std::uint32_t kHandsMax = 1000;
constexpr std::uint64_t kDeckStream = 1;
constexpr std::uint64_t kAnswerStream = 2;  // of player 0; the next one is player 1's

constexpr std::string_view kPokerRules =
    "You play no-limit Texas hold'em against one player. Blinds are 1 and 2, and both begin each hand with 100 chips. "
    "Odds are your chance to win against unknown cards. Answer with one action, such as \"Action: Call\" or \"Action: "
    "Raise 50\"; 50 is then your whole bet of this round. What is not allowed counts as a check, or else a fold.\n";

}  // namespace

Result<PokerTable> PokerTable::make(std::uint64_t seed, const PokerTableOptions& options) {
  if (options.hands == 0 || options.hands > kHandsMax) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("poker: hands are {}; they are 1 to {}", options.hands, kHandsMax));
  }
  PokerTable table(seed, options);
  if (options.prompt == PokerPrompt::kRules) table.notices_.fill(std::string(kPokerRules));
  WC_TRY(table.deal());
  WC_TRY(table.go_on());
  return table;
}

PokerTurn PokerTable::turn() const {
  const unsigned player = to_act();
  return {*hand_, win_share_, conversations_[player], drawn(seed_, kAnswerStream + player, answered_[player])};
}

Status PokerTable::handle_answer(std::string_view text) {
  if (is_over_) return fail(Errc::kInvalidArgument, Op::kVerify, "poker: the last hand is over");
  const unsigned player = to_act();
  const HoldemChoice choice = hand_->choice();
  std::optional<HoldemAction> action = parse_poker_action(text, choice);
  conversations_[player].push_back({"assistant", std::string(text)});
  ++answered_[player];
  if (!action) {
    const bool is_check = choice.to_call == 0;
    action = {is_check ? HoldemAction::Kind::kCheckOrCall : HoldemAction::Kind::kFold, 0};
    notices_[player] = fmt::format("That was no action that is allowed ({} so far): it counted as a {}.\n",
                                   ++refused_[player], is_check ? "check" : "fold");
  }
  WC_TRY(hand_->act(*action));
  return go_on();
}

Status PokerTable::deal() {
  const std::array<Card, kDeckCards> deck = shuffled_deck(drawn(seed_, kDeckStream, hands_));
  HoldemStakes stakes;
  stakes.button = hands_ % 2;
  WC_ASSIGN(hand_, HoldemHand::deal(std::span(deck).first<9>(), stakes));
  ++hands_;
  return {};
}

Status PokerTable::go_on() {
  while (hand_->is_over()) {
    won_ += static_cast<std::int64_t>(hand_->stacks()[0]) - static_cast<std::int64_t>(hand_->stakes().stacks[0]);
    is_over_ = hands_ == options_.hands;
    if (is_over_) return {};
    WC_TRY(deal());
  }
  const unsigned player = to_act();
  win_share_ = win_share(hand_->hole(player), hand_->board(), kWinShareSamples);
  conversations_[player].push_back({"user", notices_[player] + poker_observation(*hand_, win_share_)});
  notices_[player].clear();
  return {};
}

}  // namespace weightcast
