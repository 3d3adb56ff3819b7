#include "worker/loop/rollout_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>

#include "tests/worker/engine/made_weights.h"
#include "trainer/tasks/registry.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

/// Makes rollouts of sums by a small model with random weights, which are right by chance alone.
class RolloutLoopTest : public testing::Test {
 protected:
  RolloutLoopTest() {
    run_.seed = 3;
    run_.task = "arithmetic";
    run_.group_size = 4;
    run_.rollout_batch_size = 16;
    run_.max_prompt_length = 32;
    run_.max_new_tokens = 6;
    run_.tokens_max = 64;
    run_.model_digest = "m";
    run_.tokenizer_digest = tokenizer().digest();
    run_.max_staleness = 2;
    options_.engine.cache_bytes_max = 1 << 20;
    options_.engine.running_max = 8;
    config_ = small_config();
    config_.vocab_size = 259;
  }

  static Tokenizer tokenizer() { return *Tokenizer::parse(byte_tokenizer_json()); }
  std::shared_ptr<const Task> task() const { return make_task(run_.task, run_.task_options).value(); }
  void make() { loop_ = RolloutLoop::make(run_, task(), tokenizer(), options_).value(); }
  void set_weights(std::uint64_t version) {
    ASSERT_TRUE(loop_->handle_weights(now_, Version{version}, made_weights(config_, version)).has_value());
  }
  void start(std::uint64_t first, std::uint64_t count) {
    std::vector<StartedGroup> groups;
    for (std::uint64_t i = 0; i < count; ++i) {
      groups.push_back({first + i, 1000 + (first + i) * loop_->rollouts_per_group()});
    }
    loop_->handle_groups(now_, groups);
  }
  /// Until nothing is under way.
  void finish() {
    for (int i = 0; i < 100000 && loop_->under_way() > 0; ++i) step();
    EXPECT_EQ(loop_->under_way(), 0u);
  }
  void step() {
    now_ += std::chrono::milliseconds(1);
    if (!loop_->step(now_)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    while (auto rollout = loop_->poll_rollout()) sent_.push_back(*std::move(rollout));
    for (const std::uint64_t sequence : loop_->take_abandoned()) EXPECT_TRUE(abandoned_.insert(sequence).second);
  }

  RunDescription run_;
  RolloutLoopOptions options_;
  ModelConfig config_;
  std::unique_ptr<RolloutLoop> loop_;
  Instant now_{std::chrono::hours(1)};
  std::vector<Trajectory> sent_;
  std::set<std::uint64_t> abandoned_;
};

TEST_F(RolloutLoopTest, MakesRolloutsThatTheLearnerTakes) {
  make();
  EXPECT_EQ(loop_->groups_wanted(), 0u) << "without weights nothing can begin";
  set_weights(5);
  EXPECT_GT(loop_->groups_wanted(), 0u);
  start(0, 5);
  finish();
  ASSERT_EQ(sent_.size(), 20u);
  EXPECT_TRUE(abandoned_.empty());
  TrajectoryRules rules;
  rules.task = "arithmetic";
  rules.model_digest = "m";
  rules.tokenizer_digest = run_.tokenizer_digest;
  rules.vocab_size = 259;
  std::set<std::uint64_t> sequences;
  std::map<std::string, int> groups;
  for (Trajectory& t : sent_) {
    t.worker = "w";
    const auto refused = check_trajectory(t, rules, [](Version) { return VersionStanding::kPublished; });
    EXPECT_FALSE(refused.has_value()) << refused->detail;
    EXPECT_EQ(t.oldest_version, Version{5});
    sequences.insert(t.sequence);
    ++groups[t.group];
  }
  EXPECT_EQ(sequences.size(), 20u);
  EXPECT_EQ(*sequences.begin(), 1000u);
  EXPECT_EQ(groups.size(), 5u);
}

/// Answers after two steps, and under the version that the test sets. The third and the sixth request fail: no more,
/// since one rollout may make both, whichever the threads of rewards are quick with, and has three attempts.
struct ScriptedAnswers final : AnswerSource {
  Result<RequestId> add(EngineRequest request) override {
    waiting.push_back({RequestId{++count}, std::move(request)});
    return waiting.back().first;
  }
  Status abort(RequestId) override { return {}; }
  std::vector<EngineEvent> step() override {
    std::vector<EngineEvent> events;
    for (auto& [id, request] : std::exchange(waiting, {})) {
      EngineEvent event;
      event.id = id;
      event.tag = request.tag;
      const bool fails = id.value == 3 || id.value == 6;
      event.finished = fails ? FinishReason::kFailed : FinishReason::kStopToken;
      if (!fails) event.tokens = {{.token = request.stop_tokens.at(0), .version = version, .top = {}}};
      events.push_back(std::move(event));
    }
    return events;
  }
  bool busy() const override { return !waiting.empty(); }

  Version version{7};
  std::uint64_t count = 0;
  std::vector<std::pair<RequestId, EngineRequest>> waiting;
};

TEST_F(RolloutLoopTest, PlaysOnWhatAnotherSourceAnswers) {
  const auto answers = std::make_shared<ScriptedAnswers>();
  options_.answers = answers;
  options_.has_log_probs = false;
  make();
  EXPECT_EQ(loop_->groups_wanted(), 0u);
  loop_->handle_version(now_, Version{7});
  EXPECT_EQ(loop_->version(), Version{7});
  start(0, 3);
  finish();
  ASSERT_EQ(sent_.size(), 12u) << "what failed was asked again";
  for (const Trajectory& t : sent_) {
    EXPECT_EQ(t.oldest_version, Version{7});
    EXPECT_TRUE(t.logprobs.empty());
  }
  EXPECT_GT(loop_->stats().failures, 0u);
}

TEST_F(RolloutLoopTest, TimesTheAnswersOfAnotherSource) {
  const auto answers = std::make_shared<ScriptedAnswers>();
  options_.answers = answers;
  make();
  loop_->handle_version(now_, Version{7});
  start(0, 3);
  finish();
  EXPECT_EQ(loop_->answering(), 0u);
  const std::vector<AnswerTime> times = loop_->take_answer_times();
  ASSERT_EQ(times.size(), 12u) << "those that failed do not count";
  for (const AnswerTime& answer : times) {
    EXPECT_GT(answer.span, Duration::zero());
    EXPECT_LE(answer.span, std::chrono::milliseconds(2));
    EXPECT_EQ(answer.tokens, 1u);
    EXPECT_GE(answer.running, 1) << "itself";
    EXPECT_LE(answer.running, 8) << "slots";
  }
  EXPECT_TRUE(loop_->take_answer_times().empty());
}

/// As a worker hears of its run.
RunDescription told(const RunDescription& run) { return read_run_description(write_run_description(run)).value(); }

TEST_F(RolloutLoopTest, SendsNoGroupWithoutSignalIfTheRunFilters) {
  const auto finished_groups = [&] {
    const auto answers = std::make_shared<ScriptedAnswers>();  // all are empty, and score 0
    options_.answers = answers;
    run_ = told(run_);
    make();
    loop_->handle_version(now_, Version{7});
    start(0, 3);
    finish();
    step();
    return loop_->stats().scheduler;
  };
  EXPECT_EQ(finished_groups().groups_filtered, 0u);
  EXPECT_EQ(sent_.size(), 12u);
  sent_.clear();
  run_.filter_equal_rewards = true;
  EXPECT_EQ(finished_groups().groups_filtered, 3u);
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(abandoned_.size(), 12u) << "the learner hears that none comes";
}

TEST_F(RolloutLoopTest, ARolloutIsTheSameWhateverElseIsMade) {
  const auto tokens_of = [&](std::uint64_t first, std::uint64_t count, std::size_t running_max) {
    options_.engine.running_max = running_max;
    make();
    set_weights(5);
    sent_.clear();
    start(first, count);
    finish();
    std::map<std::pair<std::string, std::uint64_t>, std::vector<std::int32_t>> tokens;
    for (const Trajectory& t : sent_) tokens[{t.group, t.sequence}] = t.tokens;
    return tokens;
  };
  const auto all = tokens_of(0, 6, 8);
  for (const auto& [name, tokens] : tokens_of(3, 1, 2)) EXPECT_EQ(all.at(name), tokens);
}

TEST_F(RolloutLoopTest, TokensKnowTheirVersion) {
  run_.max_new_tokens = 64;
  make();
  set_weights(5);
  start(0, 1);
  // Prompts are made on other threads: on a busy host not all have begun when the first has some tokens.
  for (int i = 0; i < 100000 && loop_->stats().tokens < 8; ++i) step();
  set_weights(6);
  EXPECT_EQ(loop_->version(), Version{6});
  finish();
  bool has_both = false;
  for (const Trajectory& t : sent_) {
    EXPECT_EQ(t.oldest_version, t.version_runs.front().version);
    has_both = has_both || (t.version_runs.size() == 2 && t.version_runs[1].version == Version{6});
  }
  EXPECT_TRUE(has_both);
}

TEST_F(RolloutLoopTest, StopsWhatTheLearnerDoesNotWantAnyMore) {
  run_.max_new_tokens = 64;
  make();
  set_weights(5);
  start(0, 2);
  step();
  loop_->handle_learner(now_, {.version = Version{5}, .oldest_admissible = Version{3}, .abort = {1001}});
  finish();
  ASSERT_EQ(sent_.size(), 4u);
  for (const Trajectory& t : sent_) EXPECT_GE(t.sequence, 1004u);
  EXPECT_EQ(abandoned_, (std::set<std::uint64_t>{1000, 1001, 1002, 1003}));
}

TEST_F(RolloutLoopTest, ALearnerThatWasRestartedGivesTheSameGroupsAgain) {
  make();
  set_weights(5);
  start(0, 3);
  for (int i = 0; i < 3; ++i) step();
  sent_.clear();
  loop_->handle_learner(now_,
                        {.version = Version{5}, .oldest_admissible = Version{3}, .has_restarted = true, .abort = {}});
  EXPECT_EQ(loop_->under_way(), 0u);
  EXPECT_TRUE(loop_->take_abandoned().empty()) << "it does not know them";
  loop_->handle_groups(now_, std::vector<StartedGroup>{{1, 2000}});
  finish();
  ASSERT_EQ(sent_.size(), 4u);
  for (const Trajectory& t : sent_) EXPECT_GE(t.sequence, 2000u);
}

TEST_F(RolloutLoopTest, StopsWhatBecameTooStale) {
  run_.max_new_tokens = 64;
  make();
  set_weights(5);
  start(0, 1);
  step();
  loop_->handle_learner(now_, {.version = Version{8}, .oldest_admissible = Version{6}, .abort = {}});
  for (int i = 0; i < 100; ++i) step();
  EXPECT_TRUE(sent_.empty());
  set_weights(8);
  finish();
  EXPECT_EQ(sent_.size(), 4u) << "it begins anew under a version that counts";
  for (const Trajectory& t : sent_) EXPECT_EQ(t.oldest_version, Version{8});
}

TEST_F(RolloutLoopTest, TheFirstOnesOfAGroupCount) {
  run_.group_size_redundancy = 2;
  run_ = told(run_);
  options_.engine.running_max = 12;
  make();
  EXPECT_EQ(loop_->rollouts_per_group(), 6u);
  set_weights(5);
  start(0, 2);
  finish();
  step();
  EXPECT_EQ(sent_.size(), 8u);
  EXPECT_EQ(abandoned_.size(), 4u);
  for (const Trajectory& t : sent_) EXPECT_FALSE(abandoned_.contains(t.sequence));
}

TEST_F(RolloutLoopTest, AGroupWhosePromptIsTooLongIsDropped) {
  run_.max_prompt_length = 1;
  make();
  set_weights(5);
  start(0, 1);
  finish();
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(abandoned_.size(), 4u);
  EXPECT_THAT(loop_->stats().last_failure, HasSubstr("max_prompt_length is 1"));
}

TEST_F(RolloutLoopTest, WeightsOfAnotherModelAreRefused) {
  make();
  set_weights(5);
  start(0, 1);
  config_.num_hidden_layers = 1;
  EXPECT_FALSE(loop_->handle_weights(now_, Version{6}, made_weights(config_, 6)).has_value());
  EXPECT_EQ(loop_->version(), Version{5});
  finish();
  EXPECT_EQ(sent_.size(), 4u);
}

TEST_F(RolloutLoopTest, RefusesAChatTemplateThatItDoesNotHave) {
  run_.chat_template = "qwen9";
  EXPECT_THAT(RolloutLoop::make(run_, task(), tokenizer(), options_).error().message(), HasSubstr("'qwen9'"));
}

TEST_F(RolloutLoopTest, PlaysAllTurnsOfAnEpisode) {
  run_.task = "sokoban";
  run_.turns_max = 3;
  run_.chat_template = "qwen2.5";
  run_.max_prompt_length = 1000;
  run_.tokens_max = 4000;
  config_.max_position_embeddings = 4096;
  options_.engine.cache_bytes_max = 64 << 20;
  make();
  set_weights(5);
  start(0, 1);
  finish();
  ASSERT_EQ(sent_.size(), 4u) << loop_->stats().last_failure;
  for (const Trajectory& t : sent_) {
    EXPECT_EQ(t.turns.size(), 3u);
    EXPECT_NEAR(t.reward, -0.3, 1e-6) << "nonsense costs a step a turn";
    const std::string text = tokenizer().decode(t.tokens).value();
    EXPECT_TRUE(text.starts_with("<|im_start|>system\nYou are Qwen")) << text;
    EXPECT_EQ(text.rfind("You are Qwen"), text.find("You are Qwen")) << "later turns go on: " << text;
  }
}

}  // namespace
}  // namespace weightcast
