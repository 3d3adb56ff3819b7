#include "bench/paper/poker/poker_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

#include "base/json_text.h"
#include "base/random.h"
#include "bench/paper/run_statistics.h"

namespace weightcast::bench {
namespace {

using testing::Each;
using testing::HasSubstr;

PokerMatchOptions options_of(std::uint64_t deals, std::uint32_t hands = 2) {
  PokerMatchOptions options;
  options.hands = hands;
  options.prompt = PokerPrompt::kState;
  options.deals = deals;
  options.seed = 11;
  return options;
}

PokerMatchResult match_of(const PokerPlayer& first, const PokerPlayer& second, const PokerMatchOptions& options) {
  return play_match(first, second, options).value();
}

/// A player that draws what it says, by its turn's seed.
class Gambler final : public PokerPlayer {
 public:
  Result<std::vector<std::string>> answers(std::span<const PokerTurn> turns) const override {
    std::vector<std::string> texts;
    for (const PokerTurn& turn : turns) {
      Random random(turn.seed);
      const char* all[] = {"Action: Fold", "Action: Call", "Action: Check", "Action: All-in", "nothing"};
      texts.emplace_back(all[random.below(5)]);
    }
    return texts;
  }
};

class Mute final : public PokerPlayer {
 public:
  Result<std::vector<std::string>> answers(std::span<const PokerTurn>) const override {
    return std::vector<std::string>();
  }
};

TEST(PokerMatch, IdenticalPlayersGetZeroFromEachMirroredDeal) {
  for (const std::uint32_t hands : {1u, 2u, 3u}) {
    for (const PokerRule rule : {PokerRule::kTightPassive, PokerRule::kLooseAggressive, PokerRule::kPotOdds}) {
      const RulePlayer first(rule), second(rule);
      const PokerMatchResult match = match_of(first, second, options_of(70, hands));
      EXPECT_EQ(match.chips_per_hand.size(), 70u);
      EXPECT_THAT(match.chips_per_hand, Each(0.0));
      EXPECT_EQ(match.hands, 140u * hands);
    }
    const Gambler first, second;
    EXPECT_THAT(match_of(first, second, options_of(70, hands)).chips_per_hand, Each(0.0)) << "draws by the seat's seed";
  }
}

TEST(PokerMatch, IsZeroSum) {
  const RulePlayer rule(PokerRule::kPotOdds);
  const Gambler gambler;
  const PokerMatchResult one = match_of(rule, gambler, options_of(40)), other = match_of(gambler, rule, options_of(40));
  ASSERT_EQ(one.chips_per_hand.size(), other.chips_per_hand.size());
  for (std::size_t i = 0; i < one.chips_per_hand.size(); ++i) {
    EXPECT_DOUBLE_EQ(one.chips_per_hand[i], -other.chips_per_hand[i]);
  }
  EXPECT_EQ(one.refused, 0u);
  EXPECT_GT(other.refused, 0u);
  EXPECT_LT(other.refused, other.answered);
}

TEST(PokerMatch, AStrongerRuleWins) {
  // Who calls where that pays, and bets, against who folds all but the best cards and never bets.
  const RulePlayer pot_odds(PokerRule::kPotOdds), tight_passive(PokerRule::kTightPassive);
  const Interval interval = bootstrap_interval(match_of(pot_odds, tight_passive, options_of(400)).chips_per_hand, 1);
  EXPECT_GT(interval.low, 0) << interval.mean;
}

TEST(PokerMatch, NamesAPlayerThatDoesNotAnswer) {
  const Mute mute;
  EXPECT_THAT(play_match(mute, mute, options_of(3)).error().message(), HasSubstr("gave 0 answers to"));
}

TEST(PokerLog, HasEachLoggedPlayersConversationAndChips) {
  PokerLogOptions options;
  options.hands = 2;
  options.prompt = PokerPrompt::kState;
  options.players = {PokerRule::kPotOdds, PokerRule::kTightPassive};
  options.tables = 6;
  options.seed = 5;
  const std::string log = poker_log(options).value();
  EXPECT_EQ(poker_log(options).value(), log);
  std::istringstream lines(log);
  std::string line;
  std::size_t count = 0, others_turn = 0;
  std::int64_t chips = 0;
  while (std::getline(lines, line)) {
    const nlohmann::json json = parse_json(line);
    const auto& messages = json.at("messages");
    ASSERT_GT(messages.size(), 0u);
    EXPECT_EQ(messages.size() % 2, 0u) << "it ends with an answer";
    for (std::size_t i = 0; i < messages.size(); ++i) {
      EXPECT_EQ(messages[i].at("role"), i % 2 == 0 ? "user" : "assistant");
      EXPECT_THAT(messages[i].at("content").get<std::string>(), HasSubstr(i % 2 == 0 ? "Hand: [" : "Action: "));
    }
    others_turn += messages[0].at("content").get<std::string>().find("Pot: 3,") == std::string::npos ? 1 : 0;
    chips += std::abs(json.at("chips").get<std::int64_t>());
    ++count;
  }
  EXPECT_LE(count, 2u * 3 * 6);
  EXPECT_GT(count, 2u * 3 * 5);
  EXPECT_GT(others_turn, 0u) << "some are of the player who acts second";
  EXPECT_GT(chips, 0);
  options.seed = 6;
  EXPECT_NE(poker_log(options).value(), log);
}

}  // namespace
}  // namespace weightcast::bench
