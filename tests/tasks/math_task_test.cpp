#include "tasks/math_task.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

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
  EXPECT_TRUE(problems->front().question.starts_with("Janet\xE2\x80\x99s ducks lay 16 eggs per day."));
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

}  // namespace
}  // namespace weightcast
