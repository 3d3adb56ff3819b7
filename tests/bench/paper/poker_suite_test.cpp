#include "bench/paper/poker/poker_suite.h"

#include <gtest/gtest.h>

#include "base/json_text.h"

namespace weightcast::bench {
namespace {

TEST(PokerSuite, ACellComesBackFromJson) {
  const PokerCell cell{"GRPO", 42, "pot_odds", -0.5, -1.25, 0.25, 2000, 0.125};
  const std::optional<PokerCell> back = poker_cell(parse_json(json_text(cell)));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(nlohmann::json(*back), nlohmann::json(cell));
  EXPECT_EQ(back->seed, 42u);
  EXPECT_EQ(back->low, -1.25);
  nlohmann::json lacking = cell;
  lacking.erase("high");
  EXPECT_FALSE(poker_cell(lacking).has_value());
  nlohmann::json wrong = cell;
  wrong["mean"] = "good";
  EXPECT_FALSE(poker_cell(wrong).has_value());
}

TEST(PokerSuite, ItsJsonFollowsFromAllThatMakesARun) {
  PokerSuite suite;
  suite.base.players = {PokerRule::kPotOdds};
  suite.cases = {{"one", {{"learning_rate", "1"}}}};
  const nlohmann::json json = to_json(suite);
  EXPECT_EQ(json["base"]["players"], nlohmann::json({"pot_odds"}));
  PokerSuite other = suite;
  other.cases[0].settings[0].value = "2";
  EXPECT_NE(to_json(other), json);
  other = suite;
  other.opponent.updates += 1;
  EXPECT_NE(to_json(other), json);
  other = suite;
  other.table.prompt = PokerPrompt::kState;
  EXPECT_NE(to_json(other), json);
}

}  // namespace
}  // namespace weightcast::bench
