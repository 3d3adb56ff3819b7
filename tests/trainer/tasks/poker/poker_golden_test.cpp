// What pokerkit makes of the same cards and actions: tests/oracles/pokerkit_hands.py.
#include <gtest/gtest.h>

#include "tests/golden_lines.h"
#include "tests/trainer/tasks/poker/poker_cards.h"
#include "trainer/tasks/poker/hand_value.h"
#include "trainer/tasks/poker/holdem_hand.h"

namespace weightcast {
namespace {

const std::string kGolden = WEIGHTCAST_TASKS_GOLDEN "/pokerkit_hands.jsonl";

std::vector<Card> cards_in(const nlohmann::json& texts) {
  std::vector<Card> cards;
  for (const auto& text : texts) cards.push_back(cards_of(text.get<std::string>()).at(0));
  return cards;
}

HoldemAction action_of(const std::string& text) {
  if (text == "fold") return {HoldemAction::Kind::kFold, 0};
  if (text == "call") return {HoldemAction::Kind::kCheckOrCall, 0};
  return {HoldemAction::Kind::kRaise, std::stoull(text.substr(text.find(' ')))};
}

TEST(PokerGolden, HandsAreThoseOfPokerkit) {
  std::size_t raises = 0, uneven = 0;
  for (const auto& line : golden_lines(kGolden)) {
    if (!line.contains("steps")) continue;
    HoldemStakes stakes;
    stakes.stacks = {line["stacks"][0].get<Chips>(), line["stacks"][1].get<Chips>()};
    stakes.button = line["button"].get<unsigned>();
    const std::vector<Card> cards = cards_in(line["cards"]);
    auto hand = HoldemHand::deal(std::span(cards).first<9>(), stakes);
    ASSERT_TRUE(hand.has_value()) << line;
    for (const auto& step : line["steps"]) {
      ASSERT_FALSE(hand->is_over()) << line;
      ASSERT_EQ(hand->to_act(), step["to_act"].get<unsigned>()) << line;
      const HoldemChoice choice = hand->choice();
      ASSERT_EQ(choice.to_call, step["to_call"].get<Chips>()) << line;
      ASSERT_EQ(hand->pot(), step["pot"].get<Chips>()) << line;
      ASSERT_EQ(choice.raise.has_value(), !step["raise"].is_null()) << line;
      if (choice.raise) {
        ASSERT_EQ(choice.raise->least, step["raise"][0].get<Chips>()) << line;
        ASSERT_EQ(choice.raise->most, step["raise"][1].get<Chips>()) << line;
      }
      const HoldemAction action = action_of(step["action"].get<std::string>());
      raises += action.kind == HoldemAction::Kind::kRaise ? 1 : 0;
      ASSERT_TRUE(hand->act(action).has_value()) << line;
    }
    ASSERT_TRUE(hand->is_over()) << line;
    for (const std::size_t player : {0u, 1u})
      ASSERT_EQ(hand->stacks()[player], line["final"][player].get<Chips>()) << line;
    uneven += stakes.stacks[0] != stakes.stacks[1] ? 1 : 0;
  }
  EXPECT_GT(raises, 10u);
  EXPECT_GT(uneven, 5u);
}

TEST(PokerGolden, TheBetterHandIsPokerkits) {
  std::array<std::size_t, 3> seen{};
  for (const auto& line : golden_lines(kGolden)) {
    if (!line.contains("better")) continue;
    const std::uint32_t first = hand_value(cards_in(line["first"])), second = hand_value(cards_in(line["second"]));
    const int better = first > second ? 1 : first < second ? -1 : 0;
    ASSERT_EQ(better, line["better"].get<int>()) << line;
    ++seen[static_cast<std::size_t>(better + 1)];
  }
  EXPECT_GT(seen[0], 5u);
  EXPECT_GT(seen[2], 5u);
}

}  // namespace
}  // namespace weightcast
