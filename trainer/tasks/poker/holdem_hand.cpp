#include "trainer/tasks/poker/holdem_hand.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/tasks/poker/hand_value.h"

namespace weightcast {
namespace {

constexpr Chips kStackMax = Chips{1} << 32;

Error refuse(std::string why) { return fail(Errc::kInvalidArgument, Op::kVerify, "poker: " + std::move(why)); }

}  // namespace

Result<HoldemHand> HoldemHand::deal(std::span<const Card, 9> cards, const HoldemStakes& stakes) {
  if (stakes.small_blind == 0 || stakes.small_blind > stakes.big_blind || stakes.button > 1) {
    return refuse("the blinds are at least 1, the small one first; the button is 0 or 1");
  }
  for (const Chips stack : stakes.stacks) {
    if (stack < stakes.big_blind || stack > kStackMax) {
      return refuse(fmt::format("a stack is {}; it is {} to {}", stack, stakes.big_blind, kStackMax));
    }
  }
  HoldemHand hand(stakes);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (cards[i].index >= kDeckCards || (seen >> cards[i].index & 1) != 0)
      return refuse("a card is none, or dealt twice");
    seen |= std::uint64_t{1} << cards[i].index;
    hand.cards_[i] = cards[i];
  }
  hand.stacks_ = stakes.stacks;
  hand.bet(stakes.button, stakes.small_blind);
  hand.bet(1 - stakes.button, stakes.big_blind);
  hand.last_raise_ = stakes.big_blind;
  hand.to_act_ = stakes.button;
  return hand;
}

void HoldemHand::bet(unsigned player, Chips chips) {
  WC_CHECK(chips <= stacks_[player]);
  stacks_[player] -= chips;
  bets_[player] += chips;
}

HoldemChoice HoldemHand::choice() const {
  const unsigned me = to_act_, other = 1 - me;
  HoldemChoice choice;
  const Chips missing = bets_[other] > bets_[me] ? bets_[other] - bets_[me] : 0;
  choice.to_call = std::min(missing, stacks_[me]);
  if (stacks_[me] > missing && stacks_[other] > 0) {
    const Chips most = bets_[me] + stacks_[me];
    choice.raise = {std::min(bets_[other] + last_raise_, most), most};
  }
  return choice;
}

Status HoldemHand::act(const HoldemAction& action) {
  if (is_over_) return refuse("the hand is over");
  const unsigned me = to_act_, other = 1 - me;
  const HoldemChoice possible = choice();
  switch (action.kind) {
    case HoldemAction::Kind::kFold: win(other); return {};
    case HoldemAction::Kind::kCheckOrCall: bet(me, possible.to_call); break;
    case HoldemAction::Kind::kRaise:
      if (!possible.raise) return refuse("no raise is possible");
      if (action.raise_to < possible.raise->least || action.raise_to > possible.raise->most) {
        return refuse(fmt::format("a raise to {}; it is to {} to {}", action.raise_to, possible.raise->least,
                                  possible.raise->most));
      }
      last_raise_ = std::max(last_raise_, action.raise_to - bets_[other]);
      bet(me, action.raise_to - bets_[me]);
      has_acted_[other] = false;
      break;
  }
  has_acted_[me] = true;
  to_act_ = other;
  if (is_round_over()) end_round();
  return {};
}

bool HoldemHand::is_round_over() const {
  // A player without chips has nothing to decide.
  const auto is_done = [&](unsigned player) {
    return stacks_[player] == 0 || (has_acted_[player] && bets_[player] >= bets_[1 - player]);
  };
  // Nor has one whose bet the other cannot match any more.
  const auto has_matched = [&](unsigned player) {
    return stacks_[1 - player] == 0 && bets_[player] >= bets_[1 - player];
  };
  return (is_done(0) || has_matched(0)) && (is_done(1) || has_matched(1));
}

void HoldemHand::end_round() {
  const Chips matched = std::min(bets_[0], bets_[1]);
  for (const unsigned player : {0u, 1u}) {
    stacks_[player] += bets_[player] - matched;
    bets_[player] = 0;
  }
  pot_ += 2 * matched;
  if (stacks_[0] == 0 || stacks_[1] == 0 || board_cards_ == 5) return show_down();
  board_cards_ = board_cards_ == 0 ? 3 : board_cards_ + 1;
  last_raise_ = stakes_.big_blind;
  has_acted_ = {};
  to_act_ = 1 - stakes_.button;
}

void HoldemHand::show_down() {
  board_cards_ = 5;
  std::array<std::uint32_t, 2> values{};
  for (const unsigned player : {0u, 1u}) {
    std::array<Card, 7> seven{};
    std::ranges::copy(hole(player), seven.begin());
    std::ranges::copy(board(), seven.begin() + 2);
    values[player] = hand_value(seven);
  }
  if (values[0] != values[1]) return win(values[0] > values[1] ? 0 : 1);
  // Both have put in the same, so it is even.
  for (Chips& stack : stacks_) stack += pot_ / 2;
  pot_ = 0;
  is_over_ = true;
}

void HoldemHand::win(unsigned player) {
  stacks_[player] += pot();
  pot_ = 0;
  bets_ = {};
  is_over_ = true;
}

}  // namespace weightcast
