#include "trainer/tasks/poker/holdem_hand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/random.h"
#include "tests/trainer/tasks/poker/poker_cards.h"
#include "trainer/tasks/poker/poker_rules.h"
#include "trainer/tasks/poker/win_share.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<HoldemHand> deal(std::string_view cards, const HoldemStakes& stakes = {}) {
  const std::vector<Card> nine = cards_of(cards);
  return HoldemHand::deal(std::span(nine).first<9>(), stakes);
}

constexpr std::string_view kAcesAgainstKings = "Ah Ad Kh Kd 2c 7s 9d Jc 3h";

TEST(HoldemHand, GoesThroughItsRounds) {
  HoldemHand hand = deal(kAcesAgainstKings).value();
  EXPECT_THAT(hand.stacks(), ElementsAre(99, 98));
  EXPECT_EQ(hand.to_act(), 0u);  // the button, before the flop
  EXPECT_EQ(hand.choice().to_call, 1u);
  ASSERT_TRUE(hand.act(kCall).has_value());
  EXPECT_EQ(hand.to_act(), 1u);  // the big blind may still raise
  EXPECT_EQ(hand.choice().to_call, 0u);
  EXPECT_TRUE(hand.board().empty());
  ASSERT_TRUE(hand.act(kCall).has_value());
  EXPECT_EQ(cards_text(hand.board()), "[2c, 7s, 9d]");
  EXPECT_EQ(hand.to_act(), 1u);  // the button is last from now on
  ASSERT_TRUE(hand.act(raise_to(10)).has_value());
  EXPECT_EQ(hand.choice().to_call, 10u);
  EXPECT_EQ(hand.choice().raise->least, 20u);
  ASSERT_TRUE(hand.act(raise_to(25)).has_value());
  EXPECT_EQ(hand.choice().raise->least, 40u);  // by 15 again
  EXPECT_EQ(hand.pot(), 39u);
  ASSERT_TRUE(hand.act(kCall).has_value());
  EXPECT_EQ(hand.board().size(), 4u);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(hand.act(kCall).has_value());
  EXPECT_TRUE(hand.is_over());
  EXPECT_THAT(hand.stacks(), ElementsAre(127, 73));
  EXPECT_THAT(hand.act(kCall).error().message(), HasSubstr("the hand is over"));
}

TEST(HoldemHand, AFoldGivesThePotAway) {
  HoldemHand hand = deal(kAcesAgainstKings).value();
  ASSERT_TRUE(hand.act(raise_to(6)).has_value());
  ASSERT_TRUE(hand.act(kFold).has_value());
  EXPECT_TRUE(hand.is_over());
  EXPECT_EQ(hand.pot(), 0u);
  EXPECT_THAT(hand.stacks(), ElementsAre(102, 98));
}

TEST(HoldemHand, WhatNobodyCanMatchGoesBack) {
  HoldemStakes stakes;
  stakes.stacks = {30, 100};
  HoldemHand hand = deal(kAcesAgainstKings, stakes).value();
  ASSERT_TRUE(hand.act(kCall).has_value());
  ASSERT_TRUE(hand.act(raise_to(100)).has_value());
  EXPECT_EQ(hand.choice().to_call, 28u);
  EXPECT_FALSE(hand.choice().raise);
  ASSERT_TRUE(hand.act(kCall).has_value());
  EXPECT_TRUE(hand.is_over());  // nothing is left to decide
  EXPECT_EQ(hand.board().size(), 5u);
  EXPECT_THAT(hand.stacks(), ElementsAre(60, 70));
}

TEST(HoldemHand, EqualHandsShare) {
  HoldemHand hand = deal("2h 3d 2c 3s Ah Kh Qh Jh Th").value();
  ASSERT_TRUE(hand.act(raise_to(50)).has_value());
  while (!hand.is_over()) ASSERT_TRUE(hand.act(kCall).has_value());
  EXPECT_THAT(hand.stacks(), ElementsAre(100, 100));
}

TEST(HoldemHand, RefusesRaisesThatTheRulesDoNotAllow) {
  HoldemHand hand = deal(kAcesAgainstKings).value();
  for (const Chips chips : {Chips{0}, Chips{3}, Chips{101}, ~Chips{0}}) {
    EXPECT_THAT(hand.act(raise_to(chips)).error().message(), HasSubstr("it is to 4 to 100")) << chips;
  }
  EXPECT_THAT(hand.stacks(), ElementsAre(99, 98));
  ASSERT_TRUE(hand.act(raise_to(100)).has_value());
  EXPECT_THAT(hand.act(raise_to(100)).error().message(), HasSubstr("no raise is possible"));
}

TEST(HoldemHand, RefusesStakesAndCardsThatAreNone) {
  const auto refusal = [](const HoldemStakes& stakes) { return deal(kAcesAgainstKings, stakes).error().message(); };
  EXPECT_THAT(refusal({.stacks = {1, 100}}), HasSubstr("a stack is 1"));
  EXPECT_THAT(refusal({.stacks = {100, Chips{1} << 33}}), HasSubstr("a stack is 8589934592"));
  EXPECT_THAT(refusal({.small_blind = 3}), HasSubstr("the blinds"));
  EXPECT_THAT(refusal({.button = 2}), HasSubstr("the button"));
  EXPECT_THAT(deal("Ah Ah Kh Kd 2c 7s 9d Jc 3h").error().message(), HasSubstr("dealt twice"));
  std::array<Card, 9> cards{};
  cards[0].index = 200;
  EXPECT_FALSE(HoldemHand::deal(cards, {}).has_value());
}

/// Whatever players do: no chip is lost or made, every choice that is offered is possible, and a hand ends.
TEST(HoldemHand, KeepsEveryChip) {
  Random random(21);
  unsigned all_in = 0, folded = 0, shown = 0;
  for (std::uint64_t game = 0; game < 20000; ++game) {
    HoldemStakes stakes;
    stakes.button = static_cast<unsigned>(game % 2);
    stakes.stacks = {random.between(2, 60), random.between(2, 60)};
    const auto deck = shuffled_deck(game);
    HoldemHand hand = HoldemHand::deal(std::span(deck).first<9>(), stakes).value();
    const Chips chips = stakes.stacks[0] + stakes.stacks[1];
    bool has_folded = false;
    for (unsigned steps = 0; !hand.is_over(); ++steps) {
      ASSERT_LT(steps, 200u);
      const HoldemChoice choice = hand.choice();
      ASSERT_LE(choice.to_call, hand.stacks()[hand.to_act()]);
      HoldemAction action = kCall;
      if (choice.raise) {
        ASSERT_LE(choice.raise->least, choice.raise->most);
        if (random.chance(0.4)) action = raise_to(random.between(choice.raise->least, choice.raise->most));
      }
      if (random.chance(0.05)) action = kFold;
      has_folded = has_folded || action == kFold;
      ASSERT_TRUE(hand.act(action).has_value());
      ASSERT_EQ(hand.stacks()[0] + hand.stacks()[1] + hand.pot(), chips);
    }
    ASSERT_EQ(hand.pot(), 0u);
    // Nobody wins more than they could have lost.
    for (const unsigned player : {0u, 1u})
      ASSERT_LE(hand.stacks()[player], stakes.stacks[player] + stakes.stacks[1 - player]);
    const Chips at_stake = std::min(stakes.stacks[0], stakes.stacks[1]);
    ASSERT_GE(hand.stacks()[0] + at_stake, stakes.stacks[0]);
    ASSERT_GE(hand.stacks()[1] + at_stake, stakes.stacks[1]);
    all_in += hand.stacks()[0] == 0 || hand.stacks()[1] == 0 ? 1 : 0;
    folded += has_folded ? 1 : 0;
    shown += has_folded ? 0 : 1;
  }
  EXPECT_GT(all_in, 1000u);
  EXPECT_GT(folded, 1000u);
  EXPECT_GT(shown, 1000u);
}

/// In hands against each other.
TEST(PokerRules, AlwaysDoWhatIsPossibleAndDiffer) {
  struct Counts {
    double actions = 0, folds = 0, raises = 0;
  };
  std::array<Counts, 3> counts{};
  for (std::uint64_t game = 0; game < 900; ++game) {
    const std::array<std::size_t, 2> players{game % 3, game / 3 % 3};
    HoldemStakes stakes;
    stakes.button = static_cast<unsigned>(game % 2);
    const auto deck = shuffled_deck(game);
    HoldemHand hand = HoldemHand::deal(std::span(deck).first<9>(), stakes).value();
    while (!hand.is_over()) {
      const unsigned me = hand.to_act();
      const double share = win_share(hand.hole(me), hand.board(), 40);
      const HoldemAction action = rule_action(static_cast<PokerRule>(players[me]), hand.choice(), hand.pot(), share);
      Counts& mine = counts[players[me]];
      ++mine.actions;
      mine.folds += action.kind == HoldemAction::Kind::kFold ? 1 : 0;
      mine.raises += action.kind == HoldemAction::Kind::kRaise ? 1 : 0;
      ASSERT_TRUE(hand.act(action).has_value());
    }
    ASSERT_EQ(hand.stacks()[0] + hand.stacks()[1], 200u);
  }
  const auto& [tight, loose, odds] = counts;
  EXPECT_EQ(tight.raises, 0);
  EXPECT_GT(loose.raises / loose.actions, 0.25);
  EXPECT_GT(odds.raises, 0);
  EXPECT_GT(loose.raises / loose.actions, odds.raises / odds.actions);
  EXPECT_GT(tight.folds / tight.actions, loose.folds / loose.actions);
}

TEST(PokerRules, DoWhatTheirNamesSay) {
  const HoldemChoice bet{10, HoldemChoice::Raise{20, 100}}, none{0, HoldemChoice::Raise{2, 100}}, all_in{10, {}};
  EXPECT_EQ(rule_action(PokerRule::kTightPassive, bet, 30, 0.59), kFold);
  EXPECT_EQ(rule_action(PokerRule::kTightPassive, bet, 30, 0.99), kCall);
  EXPECT_EQ(rule_action(PokerRule::kTightPassive, none, 30, 0.1), kCall);
  EXPECT_EQ(rule_action(PokerRule::kLooseAggressive, bet, 30, 0.5), raise_to(50));
  EXPECT_EQ(rule_action(PokerRule::kLooseAggressive, bet, 300, 0.5), raise_to(100));
  EXPECT_EQ(rule_action(PokerRule::kLooseAggressive, bet, 30, 0.35), kCall);
  EXPECT_EQ(rule_action(PokerRule::kLooseAggressive, all_in, 30, 0.9), kCall);
  EXPECT_EQ(rule_action(PokerRule::kPotOdds, bet, 30, 0.26), kCall);  // 10 for 40 pays from a quarter on
  EXPECT_EQ(rule_action(PokerRule::kPotOdds, bet, 30, 0.24), kFold);
  EXPECT_EQ(rule_action(PokerRule::kPotOdds, bet, 30, 0.8), raise_to(35));
}

}  // namespace
}  // namespace weightcast
