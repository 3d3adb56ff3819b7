#include "trainer/tasks/registry.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

std::string refusal(std::string_view name, const TaskOptions& options, std::string_view data = {}) {
  const auto task = make_task(name, options, data);
  return task.has_value() ? "made" : task.error().detail;
}

TEST(TaskRegistry, RefusesUnknownNamesByTheNearest) {
  EXPECT_EQ(
      refusal("gsm8", {}),
      "'gsm8' is no task; the nearest is 'gsm8k' (all: arithmetic, gsm8k, knights_and_knaves, math, poker, sokoban)");
  EXPECT_EQ(refusal("arithmetic", {{"digits", "3"}}),
            "'digits' is no option of task arithmetic; the nearest is 'digits_max' (all: digits_max, operators)");
  EXPECT_EQ(refusal("gsm8k", {{"answer_method", "box"}}),
            "task gsm8k: 'box' is no answer_method; the nearest is 'boxed' (all: auto, strict, flexible, boxed)");
}

TEST(TaskRegistry, TakesNoFileOfProblemsAsAnOption) {
  // The caller reads it and gives its content: an option that names one would be ignored.
  EXPECT_EQ(refusal("gsm8k", {{"data", "problems.jsonl"}}),
            "'data' is no option of task gsm8k (all: answer_method)");
  EXPECT_NE(refusal("math", {{"data", "problems.jsonl"}}), "made");
}

TEST(TaskRegistry, RefusesValuesOutOfRange) {
  EXPECT_EQ(refusal("arithmetic", {{"digits_max", "0"}}), "arithmetic: digits_max is 0; it is 1 to 9");
  EXPECT_EQ(refusal("arithmetic", {{"digits_max", "10"}}), "arithmetic: digits_max is 10; it is 1 to 9");
  EXPECT_EQ(refusal("arithmetic", {{"digits_max", "2x"}}),
            "task arithmetic: digits_max = '2x' is no number that it can be");
  EXPECT_EQ(refusal("arithmetic", {{"digits_max", "-1"}}),
            "task arithmetic: digits_max = '-1' is no number that it can be");
  EXPECT_EQ(refusal("arithmetic", {{"operators", "++"}}),
            "arithmetic: operators are '++'; each is one of + - * and stands once");
  EXPECT_EQ(refusal("arithmetic", {{"operators", "/"}}),
            "arithmetic: operators are '/'; each is one of + - * and stands once");
  EXPECT_EQ(refusal("arithmetic", {{"operators", ""}}), "arithmetic: operators are empty; give some of + - *");
  EXPECT_EQ(refusal("knights_and_knaves", {{"people_min", "5"}, {"people_max", "4"}}),
            "knights_and_knaves: people are 5 to 4; between 2 and 8 are possible");
  EXPECT_NE(refusal("knights_and_knaves", {{"people_max", "9"}}), "made");
  EXPECT_EQ(refusal("sokoban", {{"rows", "9"}}), "sokoban: 9 rows, 6 columns, 2 boxes; sides are 5 to 8, boxes 1 to 3");
  EXPECT_NE(refusal("sokoban", {{"boxes", "0"}}), "made");
  EXPECT_EQ(refusal("sokoban", {{"steps_max", "0"}}), "sokoban: actions_per_turn and steps_max are at least 1");
  EXPECT_EQ(refusal("sokoban", {{"steps_min", "1000"}}),
            "sokoban: no level of 6x6 with 2 boxes and at least 1000 steps in 1000 tries; ask for fewer steps");
}

TEST(TaskRegistry, TakesOptionsInRange) {
  EXPECT_EQ(refusal("sokoban", {{"rows", "7"}, {"columns", "8"}, {"boxes", "1"}, {"steps_min", "1"}}), "made");
  EXPECT_EQ(refusal("knights_and_knaves", {{"people_min", "3"}, {"people_max", "3"}}), "made");
}

}  // namespace
}  // namespace weightcast
