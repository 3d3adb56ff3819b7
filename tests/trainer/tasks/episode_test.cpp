#include "trainer/tasks/episode.h"

#include <gtest/gtest.h>

#include <limits>

namespace weightcast {
namespace {

/// Answers until it is told to end or to fail.
class ScriptedEnvironment final : public Environment {
 public:
  explicit ScriptedEnvironment(int& resets_that_fail) : resets_that_fail_(resets_that_fail) {}

  Result<Prompt> reset(std::uint64_t seed) override {
    if (resets_that_fail_ > 0) {
      --resets_that_fail_;
      return fail(Errc::kIo, Op::kOpen, "no such game");
    }
    return Prompt{{{"user", "begin"}}, std::to_string(seed), {}};
  }
  Result<StepResult> step(std::string_view action) override {
    if (action == "fail") return fail(Errc::kIo, Op::kRead, "the game is gone");
    if (action == "huge") return StepResult{"", 1e300, false};
    if (action == "nan") return StepResult{"", std::numeric_limits<double>::quiet_NaN(), false};
    return StepResult{"more", 0.5, action == "end", action == "end" || action == "nearly"};
  }

 private:
  int& resets_that_fail_;
};

class EpisodeTest : public testing::Test {
 protected:
  Episode make(EpisodeLimits limits = {}) {
    return Episode(
        [this] {
          ++made_;
          return std::make_unique<ScriptedEnvironment>(resets_that_fail_);
        },
        limits);
  }

  int made_ = 0;
  int resets_that_fail_ = 0;
  Instant now_{};
};

TEST_F(EpisodeTest, KeepsTheRewardOfEachTurn) {
  Episode episode = make();
  ASSERT_TRUE(episode.begin(now_, 7).has_value());
  EXPECT_EQ(*episode.step(now_, "go", 3), "more");
  EXPECT_EQ(*episode.step(now_, "end", 3), "");
  EXPECT_EQ(episode.end(), EpisodeEnd::kDone);
  EXPECT_EQ(episode.turn_rewards(), (std::vector<double>{0.5, 0.5}));
  EXPECT_FALSE(episode.step(now_, "go", 1).has_value());
}

TEST_F(EpisodeTest, SucceedsIfTheLastAnswerSaysSo) {
  Episode episode = make();
  ASSERT_TRUE(episode.begin(now_, 7).has_value());
  EXPECT_FALSE(episode.success());
  (void)episode.step(now_, "nearly", 1);
  (void)episode.step(now_, "go", 1);
  EXPECT_FALSE(episode.success()) << "an answer before the last one did";
  (void)episode.step(now_, "end", 1);
  EXPECT_TRUE(episode.success());
  ASSERT_TRUE(episode.begin(now_, 8).has_value());
  EXPECT_FALSE(episode.success()) << "another episode";
  (void)episode.step(now_, "nearly", 1);
  (void)episode.step(now_, "fail", 1);
  EXPECT_FALSE(episode.success()) << "nothing of an episode that failed counts";
}

TEST_F(EpisodeTest, EndsAtTheTurnLimit) {
  Episode episode = make({.turns_max = 2});
  ASSERT_TRUE(episode.begin(now_, 7).has_value());
  EXPECT_EQ(*episode.step(now_, "go", 1), "more");
  EXPECT_EQ(*episode.step(now_, "go", 1), "");
  EXPECT_EQ(episode.end(), EpisodeEnd::kTurnLimit);
  EXPECT_EQ(episode.turn_rewards().size(), 2u);
}

TEST_F(EpisodeTest, EndsAtTheTokenLimitAfterTheTurnThatReachesIt) {
  Episode episode = make({.tokens_max = 10});
  ASSERT_TRUE(episode.begin(now_, 7).has_value());
  EXPECT_EQ(*episode.step(now_, "go", 9), "more");
  EXPECT_EQ(*episode.step(now_, "go", 1), "");
  EXPECT_EQ(episode.end(), EpisodeEnd::kTokenLimit);
  EXPECT_EQ(episode.turn_rewards(), (std::vector<double>{0.5, 0.5}));
}

TEST_F(EpisodeTest, EndsAtTheTimeLimitWithoutAStep) {
  Episode episode = make({.time_max = std::chrono::seconds(5)});
  ASSERT_TRUE(episode.begin(now_, 7).has_value());
  EXPECT_EQ(episode.deadline(), now_ + std::chrono::seconds(5));
  episode.handle_time(episode.deadline() - Duration(1));
  EXPECT_EQ(episode.end(), EpisodeEnd::kRunning);
  EXPECT_EQ(*episode.step(episode.deadline(), "go", 1), "");
  EXPECT_EQ(episode.end(), EpisodeEnd::kTimeLimit);
  EXPECT_TRUE(episode.turn_rewards().empty());
}

TEST_F(EpisodeTest, ReplacesAnEnvironmentThatFails) {
  for (const char* action : {"fail", "nan", "huge"}) {
    made_ = 0;
    Episode episode = make();
    ASSERT_TRUE(episode.begin(now_, 7).has_value());
    ASSERT_TRUE(episode.step(now_, "go", 1).has_value());
    EXPECT_EQ(*episode.step(now_, action, 1), "");
    EXPECT_EQ(episode.end(), EpisodeEnd::kFailed);
    EXPECT_TRUE(episode.turn_rewards().empty());
    EXPECT_FALSE(episode.failure().empty());
    EXPECT_EQ(episode.replaced(), 1u);
    EXPECT_EQ(made_, 2);
    ASSERT_TRUE(episode.begin(now_, 8).has_value());
    EXPECT_EQ(*episode.step(now_, "end", 1), "");
    EXPECT_EQ(episode.end(), EpisodeEnd::kDone);
    EXPECT_EQ(episode.failure(), "");
  }
}

TEST_F(EpisodeTest, BeginsWithANewEnvironmentIfTheFirstCannot) {
  resets_that_fail_ = 1;
  Episode episode = make();
  const auto prompt = episode.begin(now_, 7);
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->tag, "7");
  EXPECT_EQ(made_, 2);
  EXPECT_EQ(episode.replaced(), 1u);
}

TEST_F(EpisodeTest, GivesUpIfTheSecondCannotEither) {
  resets_that_fail_ = 2;
  Episode episode = make();
  EXPECT_EQ(episode.begin(now_, 7).error().code, Errc::kIo);
  EXPECT_EQ(episode.end(), EpisodeEnd::kFailed);
  EXPECT_FALSE(episode.step(now_, "go", 1).has_value());
  EXPECT_TRUE(episode.begin(now_, 7).has_value());
}

}  // namespace
}  // namespace weightcast
