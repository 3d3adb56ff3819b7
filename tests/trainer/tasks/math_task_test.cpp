#include "trainer/tasks/math/math_task.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "trainer/tasks/registry.h"

namespace weightcast {
namespace {

std::string real_problems() {
  std::ifstream file(WEIGHTCAST_TASKS_DATA "/gsm8k_test_50.jsonl");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Gsm8k, ReadsTheRealData) {
  const auto problems = MathTask::read_problems(real_problems());
  ASSERT_TRUE(problems.has_value()) << problems.error().message();
  ASSERT_EQ(problems->size(), 50u);
  EXPECT_EQ(problems->front().answer, "18");
  EXPECT_TRUE(problems->front().messages[0].content.starts_with("Janet\xE2\x80\x99s ducks lay 16 eggs per day."));
}

/// What the data's own authors wrote as a response is right by every method that reads that form.
TEST(Gsm8k, TheDatasOwnSolutionsAreRight) {
  const std::string data = real_problems();
  const auto problems = *MathTask::read_problems(data);
  std::istringstream lines(data);
  std::string line;
  const MathTask strict({}, AnswerMethod::kStrict), automatic({}, AnswerMethod::kAuto);
  for (const MathProblem& problem : problems) {
    std::getline(lines, line);
    const std::size_t mark = line.rfind("#### ");
    const std::string response = line.substr(0, mark) + "\n" + line.substr(mark, line.rfind('"') - mark);
    const Metadata metadata{{"answer", problem.answer}};
    EXPECT_EQ(strict.score(metadata, response)->reward, 1) << response;
    EXPECT_EQ(automatic.score(metadata, response)->reward, 1) << response;
    EXPECT_EQ(automatic.score(metadata, "So it is \\boxed{" + problem.answer + "\\text{ units}}.")->reward, 1);
    EXPECT_EQ(automatic.score(metadata, "#### 1" + problem.answer)->reward, 0);
  }
}

TEST(Gsm8k, PromptsWrapAround) {
  const MathTask task(*MathTask::read_problems(real_problems()), AnswerMethod::kAuto);
  EXPECT_EQ(task.prompt_count(), 50u);
  EXPECT_EQ(task.prompt(3)->messages, task.prompt(53)->messages);
  EXPECT_EQ(task.prompt(53)->tag, "gsm8k/3");
  EXPECT_NE(task.prompt(3)->messages, task.prompt(4)->messages);
}

/// A response that does what the prompt asks is right, whatever the method.
TEST(Gsm8k, ThePromptAsksForTheAnswerWhereTheMethodLooks) {
  for (const auto& [method, form] :
       std::vector<std::pair<AnswerMethod, std::string>>{{AnswerMethod::kAuto, "#### 18"},
                                                         {AnswerMethod::kStrict, "#### 18"},
                                                         {AnswerMethod::kFlexible, "#### 18"},
                                                         {AnswerMethod::kBoxed, "\\boxed{18}"}}) {
    const MathTask task(*MathTask::read_problems(real_problems()), method);
    const Prompt prompt = *task.prompt(0);
    const bool asks_for_a_box = prompt.messages[0].content.ends_with("output the final answer within \\boxed{}.");
    const bool asks_for_a_mark = prompt.messages[0].content.ends_with("output the final answer after \"####\".");
    EXPECT_EQ(asks_for_a_box, form.starts_with("\\boxed")) << form;
    EXPECT_EQ(asks_for_a_mark, form.starts_with("####")) << form;
    EXPECT_TRUE(task.score(prompt.metadata, "So it is " + form)->success) << form;
  }
}

TEST(Gsm8k, BadDataNameTheLine) {
  const std::string good = R"({"question": "1+1?", "answer": "#### 2"})";
  const auto error = [](const std::string& data) { return MathTask::read_problems(data).error().detail; };
  EXPECT_EQ(error(""), "gsm8k: the data have no problem");
  EXPECT_EQ(error(" \n\n"), "gsm8k: the data have no problem");
  EXPECT_EQ(error(good + "\n\n[1]"), "gsm8k, line 3: no JSON object");
  EXPECT_EQ(error(good + "\n{\"question\": \"x\"}"), "gsm8k, line 2: no text 'answer'");
  EXPECT_EQ(error(R"({"question": 1, "answer": "#### 2"})"), "gsm8k, line 1: no text 'question'");
  EXPECT_EQ(error(R"({"question": "x", "answer": "2"})"),
            "gsm8k, line 1: the answer has no \"#### \" before the result");
  const std::string cut = good.substr(0, good.size() - 1);
  EXPECT_EQ(error(cut), "gsm8k, line 1: no JSON object");
}

TEST(Gsm8k, WithoutProblemsItScoresAndDoesNotPrompt) {
  const MathTask task({}, AnswerMethod::kAuto);
  EXPECT_EQ(task.score({{"answer", "2"}}, "#### 2")->reward, 1);
  EXPECT_EQ(task.prompt(0).error().code, Errc::kInvalidArgument);
}

/// Rows as the data sets have them, cut short: from Hugging Face's EleutherAI/hendrycks_math,
/// BytedTsinghua-SIA/DAPO-Math-17k and PRIME-RL/Eurus-2-RL-Data.
TEST(MathTask, ReadsOtherDataAsTheyArePublished) {
  struct Case {
    TaskOptions options;
    std::string data;
    std::vector<ChatMessage> messages;
    std::string answer;
  };
  const std::string instruction = " Let's think step by step and output the final answer within \\boxed{}.";
  const std::vector<Case> cases{
      {{{"question_column", "problem"},
        {"answer_column", "solution"},
        {"answer_form", "boxed"},
        {"answer_method", "boxed"}},
       R"({"problem": "What is $1/3+1/6$?", "level": "Level 1", "type": "Algebra", "solution": "It is $\\frac13+\\frac16=\\boxed{\\frac{1}{2}}$."})",
       {{"user", "What is $1/3+1/6$?" + instruction}},
       "\\frac{1}{2}"},
      {{{"question_column", "prompt"}, {"answer_column", "reward_model.ground_truth"}, {"answer_form", "whole"}},
       R"({"data_source": "math_dapo", "prompt": [{"content": "Solve it. The last line should be Answer: $Answer", "role": "user"}], "ability": "MATH", "reward_model": {"ground_truth": "34", "style": "rule-lighteval/MATH_v2"}})",
       {{"user", "Solve it. The last line should be Answer: $Answer"}},
       "34"},
      {{{"question_column", "prompt"},
        {"answer_column", "reward_model.ground_truth"},
        {"answer_form", "whole"},
        {"rows", "ability=math"}},
       R"({"ability": "code", "prompt": [{"content": "Write it.", "role": "user"}], "reward_model": {"ground_truth": "{}", "style": "rule"}})"
       "\n"
       R"({"ability": "math", "prompt": [{"content": "Reason.", "role": "system"}, {"content": "2+2?", "role": "user"}], "reward_model": {"ground_truth": "4", "style": "rule"}})",
       {{"system", "Reason."}, {"user", "2+2?"}},
       "4"},
  };
  for (const Case& one : cases) {
    const auto task = make_task("math", one.options, one.data);
    ASSERT_TRUE(task.has_value()) << task.error().message();
    EXPECT_EQ((*task)->name(), "math");
    EXPECT_EQ((*task)->prompt_count(), 1u);
    const Prompt prompt = (*task)->prompt(0).value();
    EXPECT_EQ(prompt.messages, one.messages);
    EXPECT_EQ(prompt.metadata, (Metadata{{"answer", one.answer}}));
    EXPECT_EQ(prompt.tag, "math/0");
    EXPECT_TRUE((*task)->score(prompt.metadata, "So it is \\boxed{" + one.answer + "}.")->success);
    EXPECT_FALSE((*task)->score(prompt.metadata, "So it is \\boxed{7}.")->success);
  }
}

TEST(MathTask, ColumnsThatAreNotThereNameTheLine) {
  const auto error = [](const TaskOptions& options, std::string_view data) {
    const auto task = make_task("math", options, data);
    return task.has_value() ? "made" : task.error().detail;
  };
  constexpr std::string_view kRow = R"({"a.b": "1", "c": {"d": "2"}, "n": 5, "list": [1], "empty": ""})";
  const auto columns = [](std::string question, std::string answer) {
    return TaskOptions{{"question_column", question}, {"answer_column", answer}, {"answer_form", "whole"}};
  };
  EXPECT_EQ(error(columns("a.b", "c.d"), kRow), "made");
  EXPECT_EQ(error(columns("a.b", "n"), kRow), "made");
  EXPECT_EQ(error(columns("a", "c.d"), kRow), "math, line 1: no text 'a'");
  EXPECT_EQ(error(columns("a.b", "c"), kRow), "math, line 1: no text 'c'");
  EXPECT_EQ(error(columns("a.b", "c.d.e"), kRow), "math, line 1: no text 'c.d.e'");
  EXPECT_EQ(error(columns("list", "c.d"), kRow), "math, line 1: no text 'list'");
  EXPECT_EQ(error(columns("a.b", "empty"), kRow), "math, line 1: the answer is empty");
  EXPECT_EQ(error({{"question_column", "a.b"}, {"answer_column", "c.d"}, {"answer_form", "boxed"}}, kRow),
            "math, line 1: the answer has no \\boxed{}");
  EXPECT_EQ(error({{"rows", "ability"}}, kRow), "math: rows is 'ability'; it is NAME=VALUE");
  EXPECT_EQ(error({{"rows", "ability=math"}}, kRow), "math: the data have no row with ability=math");
  EXPECT_EQ(error({{"answer_form", "box"}}, kRow),
            "task math: 'box' is no answer_form; the nearest is 'boxed' (all: marked, boxed, whole)");
}

}  // namespace
}  // namespace weightcast
