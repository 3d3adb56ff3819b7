#include "trainer/tasks/poker/poker_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "trainer/tasks/poker/poker_task.h"

namespace weightcast {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

PokerTable table_of(std::uint64_t seed, const PokerTableOptions& options) {
  return PokerTable::make(seed, options).value();
}

/// A player that always says the same.
class Parrot final : public PokerPlayer {
 public:
  explicit Parrot(std::string text) : text_(std::move(text)) {}
  Result<std::vector<std::string>> answers(std::span<const PokerTurn> turns) const override {
    return std::vector<std::string>(turns.size(), text_);
  }

 private:
  std::string text_;
};

TEST(PokerTable, AsksAndAnswersAreEachPlayersConversation) {
  PokerTable table = table_of(3, {2, PokerPrompt::kRules});
  EXPECT_EQ(table.to_act(), 0u) << "the button acts first";
  std::set<std::uint64_t> seeds;
  while (!table.is_over()) {
    const PokerTurn turn = table.turn();
    EXPECT_EQ(turn.conversation.data(), table.conversation(table.to_act()).data());
    EXPECT_EQ(turn.conversation.back().role, "user");
    EXPECT_GT(turn.win_share, 0);
    EXPECT_TRUE(seeds.insert(turn.seed).second) << "each turn has a seed of its own";
    const bool is_check = turn.hand.choice().to_call == 0;
    ASSERT_TRUE(table.handle_answer(is_check ? "Action: Check" : "Action: Call").has_value());
  }
  for (const unsigned player : {0u, 1u}) {
    const std::span<const ChatMessage> conversation = table.conversation(player);
    ASSERT_EQ(conversation.size(), 2 * table.answered(player));
    EXPECT_THAT(conversation[0].content, StartsWith("You play no-limit Texas hold'em"));
    for (std::size_t i = 0; i < conversation.size(); ++i) {
      EXPECT_EQ(conversation[i].role, i % 2 == 0 ? "user" : "assistant");
      if (i == 0 || i % 2 == 1) continue;
      EXPECT_THAT(conversation[i].content, StartsWith("Hand: ["));
    }
    EXPECT_EQ(table.refused(player), 0u);
  }
  EXPECT_EQ(table.won(0), -table.won(1));
  EXPECT_THAT(table.handle_answer("Action: Call").error().message(), HasSubstr("the last hand is over"));
}

TEST(PokerTable, SaysTheRulesOrNot) {
  const PokerTable with = table_of(3, {2, PokerPrompt::kRules}), without = table_of(3, {2, PokerPrompt::kState});
  EXPECT_THAT(without.turn().conversation[0].content, StartsWith("Hand: ["));
  EXPECT_THAT(with.turn().conversation[0].content, EndsWith(without.turn().conversation[0].content));
}

TEST(PokerTable, EqualAnswersInExchangedPlacesGetTheSameCards) {
  // All-in against a call shows down each hand, so who won follows from the cards alone.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::array<std::int64_t, 2> won{};
    for (const unsigned raiser : {0u, 1u}) {
      PokerTable table = table_of(seed, {2, PokerPrompt::kState});
      while (!table.is_over()) {
        ASSERT_TRUE(table
                        .handle_answer(table.to_act() == raiser || table.turn().hand.choice().to_call > 0
                                           ? "Action: All-in"
                                           : "Action: Check")
                        .has_value());
      }
      won.at(raiser) = table.won(raiser);
    }
    EXPECT_EQ(won[0], -won[1]) << seed;
  }
}

TEST(PokerTable, CountsWhatIsNotAllowedAndSaysSoToWhoSaidIt) {
  PokerTable table = table_of(1, {2, PokerPrompt::kState});
  ASSERT_TRUE(table.handle_answer("Action: Call").has_value());
  ASSERT_EQ(table.to_act(), 1u);
  ASSERT_TRUE(table.handle_answer("Action: Raise 1000").has_value());
  EXPECT_EQ(table.refused(1), 1u);
  EXPECT_EQ(table.refused(0), 0u);
  EXPECT_EQ(table.to_act(), 1u) << "it counted as a check, and the flop is the big blind's";
  EXPECT_THAT(table.turn().conversation.back().content,
              StartsWith("That was no action that is allowed (1 so far): it counted as a check.\nHand: ["));
}

TEST(PokerTable, WhoeverAnswersMayBeTheOpponent) {
  PokerOptions options;
  options.hands = 2;
  options.opponent = std::make_shared<Parrot>("Action: Fold");
  const auto task = make_poker_task(options).value();
  // The policy calls as the small blind, and the other folds; then the other folds its small blind.
  const Score score = task->score(task->prompt(5)->metadata, "Action: Call").value();
  EXPECT_EQ(score, (Score{3, true}));
}

}  // namespace
}  // namespace weightcast
