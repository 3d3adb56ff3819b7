#include "worker/rollout/episode_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/tasks/registry.h"
#include "worker/rollout/prompts.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

class EpisodeRunnerTest : public testing::Test {
 protected:
  const PromptCodec codec_ = *PromptCodec::make(*Tokenizer::parse(byte_tokenizer_json()), {});
  std::shared_ptr<const Task> task_ = *make_task("arithmetic", {});
  EpisodeRunnerOptions options_{{}, 8, 1000};
  std::optional<EpisodeRunner> runner_;

  void begin(std::uint64_t index) {
    runner_.emplace(task_, codec_, options_);
    ASSERT_TRUE(runner_->handle_begun(runner_->begin_job(index)()).has_value());
  }
  void sample(std::string_view text, Version version) {
    const std::vector<TokenId> tokens = *codec_.response_ids(text);
    runner_->add_sampled(tokens, std::vector<float>(tokens.size(), -1), version);
  }
  Result<bool> answer() { return runner_->handle_answered(runner_->answer_job()()); }
  Trajectory finish() {
    Trajectory t = runner_->finish({"model", codec_.tokenizer().digest()}, 5);
    t.worker = "w";
    return t;
  }
  std::string fault_of(const Trajectory& t) const {
    TrajectoryRules rules;
    rules.task = task_->name();
    rules.model_digest = "model";
    rules.tokenizer_digest = codec_.tokenizer().digest();
    rules.vocab_size = 259;
    const auto refused = check_trajectory(t, rules, [](Version) { return VersionStanding::kPublished; });
    return refused ? refused->detail : "";
  }
};

TEST_F(EpisodeRunnerTest, MakesARolloutThatTheLearnerTakes) {
  begin(3);
  const std::vector<TokenId> prompt = runner_->tokens();
  const std::string right = *task_->solution(task_->prompt(3)->metadata);
  sample(right, Version{4});
  EXPECT_FALSE(answer().value());
  EXPECT_EQ(runner_->answer(), right);
  const Trajectory t = finish();
  EXPECT_EQ(fault_of(t), "");
  EXPECT_EQ(t.reward, 1);
  EXPECT_EQ(t.oldest_version, Version{4});
  EXPECT_EQ(t.group, group_tag(task_->prompt(3)->tag, 5));
  std::vector<std::uint8_t> mask(prompt.size(), 0);
  mask.resize(prompt.size() + right.size() + 1, 1);
  EXPECT_EQ(t.response_mask, mask);
}

TEST_F(EpisodeRunnerTest, TokensOfSeveralVersionsAreRuns) {
  begin(3);
  sample("12", Version{4});
  sample("3", Version{5});
  EXPECT_FALSE(answer().value());
  const Trajectory t = finish();
  EXPECT_EQ(t.version_runs, (std::vector<VersionRun>{{Version{4}, 3}, {Version{5}, 2}}));
  EXPECT_EQ(t.oldest_version, Version{4});
  EXPECT_EQ(t.reward, 0);
}

TEST_F(EpisodeRunnerTest, ATurnThatBeginsAnewLeavesNothing) {
  begin(3);
  sample("wrong", Version{4});
  runner_->restart_turn();
  sample(*task_->solution(task_->prompt(3)->metadata), Version{5});
  EXPECT_FALSE(answer().value());
  const Trajectory t = finish();
  EXPECT_EQ(fault_of(t), "");
  EXPECT_EQ(t.reward, 1);
  EXPECT_EQ(t.oldest_version, Version{5});
}

TEST_F(EpisodeRunnerTest, GoesOnTurnByTurnUntilThereIsNoRoom) {
  task_ = *make_task("sokoban", {});
  options_.limits.turns_max = 10;
  begin(1);
  options_.tokens_max = runner_->tokens().size() * 2;
  begin(1);
  std::uint64_t turns = 0;
  std::size_t before = runner_->tokens().size();
  const std::uint64_t first_seed = runner_->turn_seed(9);
  for (bool goes_on = true; goes_on; ++turns) {
    sample("up", Version{4});
    goes_on = answer().value();
    if (!goes_on) continue;
    EXPECT_GT(runner_->tokens().size(), before + 3) << "the answer and what the environment said";
    EXPECT_NE(runner_->turn_seed(9), first_seed);
    before = runner_->tokens().size();
  }
  EXPECT_GE(turns, 2u);
  EXPECT_LT(turns, 10u);
  const Trajectory t = finish();
  EXPECT_EQ(fault_of(t), "");
  EXPECT_LE(t.tokens.size(), options_.tokens_max);
  EXPECT_EQ(t.turns.size(), turns);
}

TEST_F(EpisodeRunnerTest, RefusesAPromptThatIsTooLong) {
  const PromptCodec narrow = *PromptCodec::make(*Tokenizer::parse(byte_tokenizer_json()), {.max_prompt_length = 1});
  EpisodeRunner runner(task_, narrow, options_);
  const Status begun = runner.handle_begun(runner.begin_job(0)());
  ASSERT_FALSE(begun.has_value());
  EXPECT_THAT(begun.error().message(), HasSubstr("max_prompt_length is 1"));
}

TEST_F(EpisodeRunnerTest, WhatAJobFailsWithComesBack) {
  begin(3);
  sample("1", Version{4});
  static_cast<void>(runner_->answer_job());
  const auto answered = runner_->handle_answered(fail(Errc::kTimedOut, Op::kVerify, "it took too long"));
  ASSERT_FALSE(answered.has_value());
  EXPECT_THAT(answered.error().message(), HasSubstr("it took too long"));
}

}  // namespace
}  // namespace weightcast
