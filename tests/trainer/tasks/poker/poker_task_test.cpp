#include "trainer/tasks/poker/poker_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/tasks/registry.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

/// The rewards of an episode in which the policy always says `answer`, and the last observation before the end.
struct Played {
  std::vector<double> rewards;
  std::string observation;
  bool success = false;
};
Played play(const Task& task, std::uint64_t seed, const std::string& answer) {
  Played played;
  const auto environment = task.make_environment();
  EXPECT_TRUE(environment->reset(seed).has_value());
  for (;;) {
    const StepResult result = environment->step(answer).value();
    played.rewards.push_back(result.reward);
    played.success = result.success;
    if (result.done) return played;
    played.observation = result.observation;
    EXPECT_LT(played.rewards.size(), 1000u);
  }
}

TEST(PokerTask, BeginsWithRulesAndAHand) {
  const auto task = *make_task("poker", {});
  const Prompt prompt = task->prompt(7).value();
  EXPECT_EQ(prompt.messages, task->make_environment()->reset(7)->messages);
  EXPECT_NE(prompt.messages, task->prompt(8)->messages);
  EXPECT_EQ(prompt.tag, "poker/7");
  EXPECT_THAT(prompt.messages[0].content, HasSubstr("\nHand: ["));
  EXPECT_THAT(prompt.messages[0].content, HasSubstr("Board: [], Pot: 3, To call: 1, Stack: 99, Odds: 0."));
}

TEST(PokerTask, LeavesTheRulesOutWhereAsked) {
  const Prompt rules = make_task("poker", {})->get()->prompt(7).value();
  const Prompt state = make_task("poker", {{"prompt", "state"}})->get()->prompt(7).value();
  EXPECT_THAT(state.messages[0].content, testing::StartsWith("Hand: ["));
  EXPECT_THAT(rules.messages[0].content, testing::EndsWith("\n" + state.messages[0].content));
  EXPECT_THAT(make_task("poker", {{"prompt", "stat"}}).error().message(), HasSubstr("the nearest is 'state'"));
}

TEST(PokerTask, DrawsThePositionWhereAsked) {
  const auto button = make_task("poker", {{"hands", "2"}}).value();
  const auto drawn = make_task("poker", {{"hands", "2"}, {"position", "drawn"}}).value();
  std::size_t moved = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::string with = button->prompt(seed)->messages[0].content,
                      place = drawn->prompt(seed)->messages[0].content;
    EXPECT_EQ(drawn->prompt(seed)->messages[0].content, place) << "the same seed gives the same episode";
    moved += with == place ? 0 : 1;
    EXPECT_THAT(with, HasSubstr("Pot: 3, To call: 1,"));
  }
  EXPECT_GT(moved, 8u);
  EXPECT_LT(moved, 32u);
  EXPECT_THAT(make_task("poker", {{"hands", "1"}, {"position", "drawn"}}).error().message(),
              HasSubstr("a position is drawn for 2 hands at least"));
}

TEST(PokerTask, WhoAlwaysFoldsLosesTheBlinds) {
  // 1 with the button, 2 without: unless the other has folded first.
  const auto task = *make_task("poker", {{"hands", "4"}, {"opponent", "loose_aggressive"}});
  double lost = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Played played = play(*task, seed, "Action: Fold");
    EXPECT_LE(played.rewards.size(), 4u);
    double sum = 0;
    for (const double reward : played.rewards) sum += reward;
    EXPECT_GE(sum, -6);
    EXPECT_EQ(played.success, sum > 0);
    lost -= sum;
  }
  EXPECT_GT(lost, 50);
}

TEST(PokerTask, WhatCannotBeReadIsACheckOrAFoldAndIsCounted) {
  const auto task = *make_task("poker", {{"hands", "2"}});
  const auto environment = task->make_environment();
  ASSERT_TRUE(environment->reset(1).has_value());
  // The small blind has a chip to pay, so that it is a fold: the hand is lost, and the next one begins.
  const StepResult first = environment->step("I do not know").value();
  EXPECT_EQ(first.reward, -1);
  ASSERT_FALSE(first.done);
  EXPECT_THAT(first.observation, HasSubstr("That was no action that is allowed (1 so far): it counted as a fold."));
  EXPECT_THAT(first.observation, HasSubstr("Hand: ["));
}

TEST(PokerTask, ScoreReplaysAnEpisode) {
  for (const char* opponent : {"tight_passive", "loose_aggressive", "pot_odds"}) {
    const auto task = *make_task("poker", {{"opponent", opponent}});
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const std::string answer = seed % 2 == 0 ? "Action: Call" : "Action: All-in";
      const Played played = play(*task, seed, answer);
      std::string response = answer;
      double sum = 0;
      for (const double reward : played.rewards) {
        sum += reward;
        response += "\n" + answer;
      }
      EXPECT_EQ(task->score(task->prompt(seed)->metadata, response).value(), (Score{sum, played.success})) << seed;
    }
  }
  const auto task = *make_task("poker", {});
  EXPECT_FALSE(task->score({}, "").has_value());
  EXPECT_THAT(task->score({{"seed", "x"}}, "").error().message(), HasSubstr("the seed 'x' is none"));
}

TEST(PokerTask, RefusesOptionsThatAreNone) {
  EXPECT_THAT(make_task("poker", {{"hands", "0"}}).error().message(), HasSubstr("hands are 0; they are 1 to 1000"));
  EXPECT_THAT(make_task("poker", {{"opponent", "shark"}}).error().message(), HasSubstr("tight_passive"));
}

}  // namespace
}  // namespace weightcast
