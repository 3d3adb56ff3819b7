#include "trainer/rollouts/episodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "base/files/posix_file_system.h"
#include "tests/trainer/loop/learner_fixture.h"
#include "trainer/rollouts/evaluation.h"
#include "trainer/update/policy.h"
#include "worker/rollout/prompts.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::SizeIs;

/// An environment of as many turns as its index says, whose rewards are 1, 2, ...; the index 100 hangs, and 101 fails.
/// Episodes of even indices succeed.
class Turns final : public Task {
 public:
  explicit Turns(std::shared_future<void> gate) : gate_(std::move(gate)) {}
  std::string_view name() const override { return "turns"; }
  Result<Prompt> prompt(std::uint64_t index) const override {
    return Prompt{{{"user", "go"}}, std::to_string(index), {{"index", std::to_string(index)}}};
  }
  Result<Score> score(const Metadata&, std::string_view) const override { return right_or_wrong(false); }
  std::unique_ptr<Environment> make_environment() const override { return std::make_unique<Play>(*this); }

 private:
  struct Play final : Environment {
    explicit Play(const Turns& of) : task(of) {}
    Result<Prompt> reset(std::uint64_t seed) override {
      index = seed;
      turn = 0;
      return task.prompt(seed);
    }
    Result<StepResult> step(std::string_view) override {
      if (index == 100) task.gate_.wait();
      if (index == 101) return fail(Errc::kIo, Op::kRead, "the board is broken");
      ++turn;
      return StepResult{"next", static_cast<double>(turn), turn >= index, turn >= index && index % 2 == 0};
    }
    const Turns& task;
    std::uint64_t index = 0, turn = 0;
  };
  std::shared_future<void> gate_;
};

/// Eight problems. Any answer to one of them is worth 0.5, and to every other one it is right.
class HalfSucceed final : public Task {
 public:
  std::string_view name() const override { return "half"; }
  std::optional<std::uint64_t> prompt_count() const override { return 8; }
  Result<Prompt> prompt(std::uint64_t index) const override {
    return Prompt{{{"user", "go"}}, std::to_string(index), {{"right", index % 2 == 0 ? "yes" : "no"}}};
  }
  Result<Score> score(const Metadata& metadata, std::string_view) const override {
    return Score{0.5, metadata.at("right") == "yes"};
  }
};

struct EpisodesTest : testing::Test {
  PosixFileSystem files;
  std::promise<void> open;
  std::shared_ptr<const Task> task = std::make_shared<Turns>(open.get_future().share());
  Decoder decoder = std::move(make_initial_model(files, make_config(tiny_run("unused")).value()).value().decoder);
  PromptCodec codec = PromptCodec::make(Tokenizer::parse(byte_tokenizer_json()).value(), {}).value();
  CompletionOptions sampling;
  EpisodeOptions options;

  EpisodesTest() {
    sampling.tokens_max = 3;
    sampling.end_token = codec.end_token();
    sampling.context_max = 1000;
    options.tokens_max = 1000;
    options.version = Version{5};
  }
  std::vector<PlayedEpisode> play(const std::vector<EpisodeRequest>& requests, RewardPoolOptions pool = {}) {
    RewardPool rewards(pool);
    Completer completer = Completer::make(decoder, sampling).value();
    return play_episodes(completer, task, codec, rewards, requests, options).value();
  }
};

TEST_F(EpisodesTest, KeepEachTurnsReward) {
  const auto played = play({{3, 1}, {1, 2}});
  const Trajectory& t = played[0].rollout;
  ASSERT_THAT(t.turns, SizeIs(3));
  EXPECT_EQ(t.turns[0].reward, 1);
  EXPECT_EQ(t.turns[2].reward, 3);
  EXPECT_EQ(t.reward, 6);
  EXPECT_EQ(t.oldest_version, Version{5});
  EXPECT_EQ(t.tokens[0], 'g');
  // Between two turns stand the observation, and the end of an answer that was cut off.
  const std::uint64_t gap = t.turns[1].begin - t.turns[0].end;
  EXPECT_TRUE(gap == 4 || gap == 5) << gap;
  EXPECT_EQ(t.tokens[t.turns[1].begin - 4], 'n');
  for (std::uint64_t i = t.turns[0].end; i < t.turns[1].begin; ++i) EXPECT_EQ(t.response_mask[i], 0);
  EXPECT_TRUE(played[1].rollout.turns.empty());
  EXPECT_EQ(played[1].rollout.reward, 1);
  EXPECT_EQ(played[1].rollout.group, group_tag("1", 0));
}

TEST_F(EpisodesTest, SayWhetherTheySucceeded) {
  const auto played = play({{1, 1}, {2, 2}});
  EXPECT_EQ(played[0].rollout.success, false);
  EXPECT_EQ(played[1].rollout.success, true);
}

/// Every episode has a reward above 0, and half of them succeed.
TEST_F(EpisodesTest, PassAnEvaluationBySuccessNotByReward) {
  const LearnerConfig config =
      make_config(with(tiny_run("unused"), {{"eval_prompts", "4"}, {"eval_samples", "2"}})).value();
  const auto half = std::make_shared<HalfSucceed>();
  const PromptOrder prompts(*half, config.seed, config.eval_prompts);
  RewardPool rewards({});
  const Metrics metrics = evaluate(decoder, half, codec, rewards, prompts, config).value();
  EXPECT_EQ(metrics.at("eval/avg@2"), 0.5);
  EXPECT_EQ(metrics.at("eval/pass@2"), 0.5);
  EXPECT_EQ(metrics.at("eval/success_rate"), 0.5);
}

TEST_F(EpisodesTest, SampleEachTurnAnew) {
  const auto one = play({{2, 1}}), again = play({{2, 1}, {2, 9}});
  EXPECT_EQ(one[0].rollout, again[0].rollout) << "whatever is played beside it";
  const Trajectory& t = one[0].rollout;
  const auto turn = [&](const Turn& of) {
    return std::vector<std::int32_t>(t.tokens.begin() + static_cast<std::ptrdiff_t>(of.begin),
                                     t.tokens.begin() + static_cast<std::ptrdiff_t>(of.end));
  };
  EXPECT_NE(turn(t.turns[0]), turn(t.turns[1]));
}

/// All turns together compute each token about once, not the whole episode at each turn.
TEST_F(EpisodesTest, ComputeWhatATurnAddsAlone) {
  Completer completer = Completer::make(decoder, sampling).value();
  RewardPool rewards({});
  const std::vector<EpisodeRequest> requests{{20, 1}, {20, 2}, {20, 3}};
  const auto played = play_episodes(completer, task, codec, rewards, requests, options).value();
  std::uint64_t tokens = 0, turns = 0;
  for (const PlayedEpisode& episode : played) {
    EXPECT_THAT(episode.rollout.turns, SizeIs(20));
    tokens += episode.rollout.tokens.size();
    turns += episode.rollout.turns.size();
  }
  // Of each turn what does not fill a block is computed again.
  EXPECT_LE(completer.status().prompt_tokens, tokens + turns * kBlockPositions);
}

TEST_F(EpisodesTest, EndAtTheirLimits) {
  options.limits.turns_max = 2;
  EXPECT_EQ(play({{9, 1}})[0].rollout.reward, 3) << "two turns, whose rewards count";
  options.limits.turns_max = 100;
  options.tokens_max = 20;
  const auto played = play({{9, 1}});
  EXPECT_LE(played[0].rollout.tokens.size(), 20u);
  EXPECT_GT(played[0].rollout.reward, 0);
}

TEST_F(EpisodesTest, CostOneRolloutWhereAnEnvironmentHangsOrFails) {
  const auto played = play({{1, 1}, {100, 2}, {101, 3}, {2, 4}}, {.threads_max = 1, .time_max = 50ms});
  EXPECT_EQ(played[0].rollout.reward, 1);
  EXPECT_THAT(played[1].failure, HasSubstr("took longer than 50 ms"));
  EXPECT_THAT(played[2].failure, HasSubstr("the board is broken"));
  EXPECT_EQ(played[3].rollout.reward, 3);
  open.set_value();
}

TEST_F(EpisodesTest, EndWhereAnObservationIsTooLong) {
  codec = PromptCodec::make(Tokenizer::parse(byte_tokenizer_json()).value(), {.max_prompt_length = 3}).value();
  RewardPool rewards({});
  const std::vector<EpisodeRequest> requests{{1, 1}, {2, 1}};
  Completer completer = Completer::make(decoder, sampling).value();
  const auto played = play_episodes(completer, task, codec, rewards, requests, options).value();
  EXPECT_EQ(played[0].failure, "") << "it has no second turn";
  EXPECT_THAT(played[1].failure, HasSubstr("max_prompt_length is 3"));
}

}  // namespace
}  // namespace weightcast
