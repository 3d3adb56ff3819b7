// What all tasks have in common, and the arithmetic one.
#include <gtest/gtest.h>

#include <set>

#include "tests/trainer/tasks/trajectory_fixture.h"
#include "trainer/tasks/registry.h"

namespace weightcast {
namespace {

constexpr std::string_view kOneProblem = R"({"question": "1+1?", "answer": "1+1=<<1+1=2>>2\n#### 2"})";

TEST(Tasks, EqualIndicesGiveEqualPrompts) {
  for (const std::string_view name : task_names()) {
    const auto task = make_task(name, {}, name == "gsm8k" || name == "math" ? kOneProblem : "");
    ASSERT_TRUE(task.has_value()) << task.error().message();
    EXPECT_EQ((*task)->name(), name);
    for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
      const auto first = (*task)->prompt(index), again = (*task)->prompt(index);
      ASSERT_TRUE(first.has_value()) << name << index;
      EXPECT_EQ(first->messages, again->messages);
      EXPECT_EQ(first->metadata, again->metadata);
      EXPECT_EQ(first->tag, again->tag);
      EXPECT_FALSE(first->tag.empty());
    }
  }
}

TEST(Tasks, GeneratedPromptsDifferAndSoDoTheirTags) {
  for (const char* name : {"arithmetic", "knights_and_knaves", "sokoban"}) {
    const auto task = *make_task(name, {});
    std::set<std::string> tags, texts;
    for (std::uint64_t index = 0; index < 50; ++index) {
      const Prompt prompt = *task->prompt(index);
      tags.insert(prompt.tag);
      texts.insert(prompt.messages.back().content);
    }
    EXPECT_EQ(tags.size(), 50u) << name;
    EXPECT_GE(texts.size(), 45u) << name;
  }
}

TEST(Tasks, ASingleTurnTaskIsAnEnvironmentOfOneStep) {
  const auto task = *make_task("arithmetic", {});
  const auto environment = task->make_environment();
  const Prompt prompt = *environment->reset(11);
  EXPECT_EQ(prompt.messages, task->prompt(11)->messages);
  const auto result = environment->step(prompt.metadata.at("answer"));
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->done);
  EXPECT_EQ(result->reward, 1);
  EXPECT_TRUE(result->success);
  ASSERT_TRUE(environment->reset(11).has_value());
  EXPECT_FALSE(environment->step("no")->success);
}

/// Each task's right answer is a success, and nonsense is none.
TEST(Tasks, EverySingleTurnTaskSaysWhatSucceeds) {
  const auto arithmetic = *make_task("arithmetic", {});
  EXPECT_EQ(*arithmetic->score({{"answer", "5"}}, "5"), (Score{1, true}));
  EXPECT_EQ(*arithmetic->score({{"answer", "5"}}, "6"), (Score{0, false}));
  const auto gsm8k = *make_task("gsm8k", {});
  EXPECT_EQ(*gsm8k->score({{"answer", "5"}}, "#### 5"), (Score{1, true}));
  EXPECT_EQ(*gsm8k->score({{"answer", "5"}}, "#### 6"), (Score{0, false}));
  const auto knights = *make_task("knights_and_knaves", {});
  const Metadata ella{{"names", "Ella"}, {"solution", "knight"}};
  EXPECT_EQ(*knights->score(ella, "Ella is a knight"), (Score{1, true}));
  EXPECT_EQ(*knights->score(ella, "Ella is a knave"), (Score{0, false}));
  const auto graded = *make_task("knights_and_knaves", {{"reward", "graded"}});
  const Metadata both{{"names", "Ella,Jack"}, {"solution", "knight,knave"}};
  EXPECT_EQ(*graded->score(both, "Ella is a knight and Jack is a knave"), (Score{1, true}));
  EXPECT_EQ(*graded->score(both, "Ella is a knight"), (Score{0.5, false}));
  EXPECT_EQ(*graded->score(both, "Ella is a knave, and Jack is a knight"), (Score{0, false}));
  EXPECT_EQ(*knights->score(both, "Ella is a knight"), (Score{0, false}));
}

TEST(Tasks, MaterialiseMakesColumnsOfTheTokens) {
  const auto task = *make_task("arithmetic", {});
  const Sample sample = task->materialise(valid_trajectory());
  EXPECT_EQ(sample.tokens, (std::vector<std::int32_t>{1, 2, 10, 11, 3, 12}));
  EXPECT_EQ(sample.loss_mask, (std::vector<std::uint8_t>{0, 0, 1, 1, 0, 1}));
  EXPECT_EQ(sample.weights, (std::vector<float>{0, 0, 1, 1, 0, 1}));
  EXPECT_EQ(sample.rollout_log_probs, (std::vector<float>{0, 0, -0.5f, 0, 0, -2}));
  EXPECT_EQ(sample.token_rewards, (std::vector<float>{0, 0, 0, -0.25f, 0, 1}));
  EXPECT_EQ(sample.reward, 0.75);
}

TEST(Tasks, MaterialiseWithoutTurnsOrLogprobs) {
  const auto task = *make_task("arithmetic", {});
  Trajectory t = valid_trajectory();
  t.turns.clear();
  t.logprobs.clear();
  const Sample sample = task->materialise(t);
  EXPECT_TRUE(sample.rollout_log_probs.empty());
  EXPECT_EQ(sample.token_rewards, (std::vector<float>{0, 0, 0, 0, 0, 0.75f}));
}

TEST(Arithmetic, TheAnswerIsTheResult) {
  const auto task = *make_task("arithmetic", {{"digits_max", "9"}, {"operators", "+-*"}});
  std::set<char> operators;
  for (std::uint64_t index = 0; index < 500; ++index) {
    const Prompt prompt = *task->prompt(index);
    const std::string& text = prompt.messages.at(0).content;
    long long a = 0, b = 0;
    char op = 0;
    ASSERT_EQ(std::sscanf(text.c_str(), "%lld%c%lld=", &a, &op, &b), 3) << text;
    operators.insert(op);
    EXPECT_LE(std::max(a, b), 999'999'999);
    EXPECT_EQ(prompt.metadata.at("answer"), std::to_string(op == '+' ? a + b : op == '-' ? a - b : a * b)) << text;
  }
  EXPECT_EQ(operators, (std::set<char>{'+', '-', '*'}));
}

TEST(Arithmetic, RewardsTheResultAlone) {
  const auto task = *make_task("arithmetic", {});
  const Metadata metadata{{"answer", "-12"}};
  EXPECT_EQ(task->score(metadata, "-12")->reward, 1);
  EXPECT_EQ(task->score(metadata, " -12\n")->reward, 1);
  for (const char* wrong : {"", "12", "-12.", "-12 or 3", "--12", "-012", "- 12"}) {
    EXPECT_EQ(task->score(metadata, wrong)->reward, 0) << wrong;
  }
  EXPECT_EQ(task->score({}, "-12").error().detail, "the prompt's metadata have no 'answer'");
}

}  // namespace
}  // namespace weightcast
