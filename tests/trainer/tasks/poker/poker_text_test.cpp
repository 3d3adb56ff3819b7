#include "trainer/tasks/poker/poker_text.h"

#include <gtest/gtest.h>

#include "tests/trainer/tasks/poker/poker_cards.h"

namespace weightcast {
namespace {

constexpr HoldemChoice kNoBet{0, HoldemChoice::Raise{2, 98}}, kBet{10, HoldemChoice::Raise{20, 98}}, kLast{10, {}};

TEST(PokerText, AnObservationSaysWhatThePlayerSees) {
  const std::vector<Card> cards = cards_of("Ah Kd 3h 4d Qs Th 2c 7s 8d");
  HoldemHand hand = HoldemHand::deal(std::span(cards).first<9>(), {}).value();
  EXPECT_EQ(
      poker_observation(hand, 0.654),
      "Hand: [Ah, Kd], Board: [], Pot: 3, To call: 1, Stack: 99, Odds: 0.65\nYou may: Fold, Call, Raise 4 to 100");
  ASSERT_TRUE(hand.act(raise_to(50)).has_value());
  ASSERT_TRUE(hand.act(kCall).has_value());
  EXPECT_EQ(poker_observation(hand, 0.5),
            "Hand: [3h, 4d], Board: [Qs, Th, 2c], Pot: 100, To call: 0, Stack: 50, Odds: 0.50\n"
            "You may: Fold, Check, Raise 2 to 50");
}

TEST(PokerText, ReadsTheLastActionOfAnAnswer) {
  EXPECT_EQ(parse_poker_action("Action: Raise 50", kBet), raise_to(50));
  EXPECT_EQ(parse_poker_action("I think.\nAction: Fold? No.\nACTION:  raise to 50.", kBet), raise_to(50));
  EXPECT_EQ(parse_poker_action("Action: Bet 2", kNoBet), raise_to(2));
  EXPECT_EQ(parse_poker_action("**Action:** Call", kBet), kCall);
  EXPECT_EQ(parse_poker_action("Action: check", kNoBet), kCall);
  EXPECT_EQ(parse_poker_action("Action: [Fold]", kNoBet), kFold);
  EXPECT_EQ(parse_poker_action("Action: All-in", kBet), raise_to(98));
  EXPECT_EQ(parse_poker_action("Action: All-in", kLast), kCall);
}

TEST(PokerText, RefusesWhatIsNoActionOrNotAllowed) {
  for (const char* text :
       {"", "Raise 50", "Action:", "Action: Dance", "Action: Raise", "Action: Raise 19", "Action: Raise 99",
        "Action: Raise -50", "Action: Raise 99999999999999999999999", "Action: Check", "Action: Raise fifty"}) {
    EXPECT_FALSE(parse_poker_action(text, kBet)) << text;
  }
  EXPECT_FALSE(parse_poker_action("Action: Call", kNoBet));
  EXPECT_FALSE(parse_poker_action("Action: Raise 50", kLast));
}

TEST(PokerText, AnActionsTextIsReadAsThatAction) {
  EXPECT_EQ(poker_action_text(kFold, kBet), "Action: Fold");
  EXPECT_EQ(poker_action_text(kCall, kBet), "Action: Call");
  EXPECT_EQ(poker_action_text(kCall, kNoBet), "Action: Check");
  EXPECT_EQ(poker_action_text(raise_to(50), kBet), "Action: Raise 50");
  EXPECT_EQ(poker_action_text(raise_to(98), kBet), "Action: All-in");
  for (const HoldemChoice& choice : {kNoBet, kBet, kLast}) {
    for (const HoldemAction& action : {kFold, kCall, raise_to(20), raise_to(98)}) {
      if (action.kind == HoldemAction::Kind::kRaise && !choice.raise) continue;
      EXPECT_EQ(parse_poker_action(poker_action_text(action, choice), choice), action);
    }
  }
}

}  // namespace
}  // namespace weightcast
