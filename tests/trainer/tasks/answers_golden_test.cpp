// What verl's scorers make of responses: tests/oracles/verl_scores.py.
#include <gtest/gtest.h>

#include "tests/golden_lines.h"
#include "trainer/tasks/math/math_answer.h"
#include "trainer/tasks/math/math_string.h"

namespace weightcast {
namespace {

std::optional<std::string> text_or_null(const nlohmann::json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<std::string>());
}

TEST(AnswersGolden, AreVerls) {
  std::size_t strict = 0, equal = 0;
  for (const auto& line : golden_lines(WEIGHTCAST_TASKS_GOLDEN "/verl_scores.jsonl")) {
    const auto response = line["response"].get<std::string>(), truth = line["truth"].get<std::string>();
    EXPECT_EQ(extract_strict(response), text_or_null(line["strict"])) << response;
    EXPECT_EQ(extract_flexible(response), text_or_null(line["flexible"])) << response;
    EXPECT_EQ(is_correct_answer(response, truth, AnswerMethod::kBoxed), line["boxed_equal"].get<bool>())
        << response << "\n"
        << truth;
    strict += line["strict"].is_null() ? 0 : 1;
    equal += line["boxed_equal"].get<bool>() ? 1 : 0;
  }
  EXPECT_GT(strict, 20u);
  EXPECT_GT(equal, 20u);
}

}  // namespace
}  // namespace weightcast
