#include "tasks/math_answer.h"

#include <gtest/gtest.h>

#include "tasks/math_string.h"

namespace weightcast {
namespace {

TEST(MathAnswer, ReadsNumbersOfEveryForm) {
  const std::vector<std::pair<const char*, Rational>> forms = {
      {"18", {18, 1}},           {"-18", {-18, 1}},
      {"+18", {18, 1}},          {"1,234,567", {1234567, 1}},
      {"3.50", {7, 2}},          {".5", {1, 2}},
      {"$18", {18, 1}},          {"\\$18", {18, 1}},
      {"-$18", {-18, 1}},        {"$-18", {-18, 1}},
      {"18 dollars", {18, 1}},   {"18.", {18, 1}},
      {"$18.00.", {18, 1}},      {"25%", {25, 1}},
      {"25\\%", {25, 1}},        {"3/4", {3, 4}},
      {"6/8", {3, 4}},           {"-3/4", {-3, 4}},
      {"\\frac{3}{4}", {3, 4}},  {"\\dfrac{3}{4}", {3, 4}},
      {"\\frac34", {3, 4}},      {"-\\frac{3}{4}", {-3, 4}},
      {"2 1/2", {5, 2}},         {"2\\frac{1}{2}", {5, 2}},
      {"5 \\text{ km}", {5, 1}}, {"5\\mathrm{cm}^{}", {5, 1}},
      {"90^\\circ", {90, 1}},    {"\\(18\\)", {18, 1}},
      {" 7 ", {7, 1}},
  };
  for (const auto& [text, value] : forms) {
    const auto number = parse_math_number(text);
    ASSERT_TRUE(number.has_value()) << text;
    EXPECT_EQ(*number, value) << text;
  }
}

TEST(MathAnswer, RefusesWhatIsNoNumber) {
  for (const char* text : {"", "x", "2x+1", "\\pi", "2\\pi", "1/0", "\\frac{1}{0}", "12 and 13", "3 - 1", "--", "$",
                           "99999999999999999999", "1,2", "(1,2)", "\\sqrt{2}"}) {
    EXPECT_FALSE(parse_math_number(text).has_value()) << text;
  }
}

TEST(MathAnswer, EqualNumbersAreEqualAnswers) {
  EXPECT_TRUE(answers_equal("0.5", "\\frac{1}{2}"));
  EXPECT_TRUE(answers_equal("$1,000.00", "1000"));
  EXPECT_TRUE(answers_equal("18 dollars", "18"));
  EXPECT_TRUE(answers_equal("5 km", "5 \\text{ km}"));
  EXPECT_FALSE(answers_equal("5 km", "5 miles"));
  EXPECT_FALSE(answers_equal("18", "18.5"));
  EXPECT_TRUE(answers_equal("x = 3\\sqrt2", "3\\sqrt{2}"));
  EXPECT_FALSE(answers_equal("x^2", "x^3"));
}

TEST(MathAnswer, AutoLooksAtTheMostExplicitPlace) {
  const auto extract = [](std::string_view text) { return extract_answer(text, AnswerMethod::kAuto).value_or("none"); };
  EXPECT_EQ(extract("4 and 5, \\boxed{18} of 20"), "18");
  EXPECT_EQ(extract("\\boxed{\\frac{1}{2}}"), "\\frac{1}{2}");
  EXPECT_EQ(extract("2+2=4\n#### 18\nmore 7"), "18");
  EXPECT_EQ(extract("#### 17\n#### $18 per day"), "$18 per day");
  EXPECT_EQ(extract("So the answer is 18, because 5 is odd."), "18");
  EXPECT_EQ(extract("Answer: 3/4"), "3/4");
  EXPECT_EQ(extract("16-3=13"), "13");
  EXPECT_EQ(extract("16-3"), "3");
  EXPECT_EQ(extract("it is -3"), "-3");
  EXPECT_EQ(extract("nothing"), "none");
  EXPECT_EQ(extract(""), "none");
}

TEST(MathAnswer, EveryMethodComparesInItsOwnWay) {
  EXPECT_TRUE(is_correct_answer("#### 1,800", "1800", AnswerMethod::kStrict));
  EXPECT_FALSE(is_correct_answer("#### 1800.0", "1800", AnswerMethod::kStrict));
  EXPECT_TRUE(is_correct_answer("#### 1800.0", "1800", AnswerMethod::kAuto));
  EXPECT_FALSE(is_correct_answer("so 1,800", "1800", AnswerMethod::kFlexible));
  EXPECT_TRUE(is_correct_answer("so 1800", "1800", AnswerMethod::kFlexible));
  EXPECT_TRUE(is_correct_answer("\\boxed{0.5}", "\\frac12", AnswerMethod::kBoxed));
  EXPECT_FALSE(is_correct_answer("0.5", "\\frac12", AnswerMethod::kBoxed));
}

TEST(MathAnswer, TakesAMegabyteOfAnythingInATime) {
  for (const char* unit : {"9", "$", "9,", "\\boxed{", "\\frac", "- ", "#### ", "answer is ", "1/"}) {
    std::string text;
    while (text.size() < 1 << 20) text += unit;
    for (const auto method :
         {AnswerMethod::kAuto, AnswerMethod::kStrict, AnswerMethod::kFlexible, AnswerMethod::kBoxed}) {
      (void)is_correct_answer(text, "1", method);
    }
  }
}

}  // namespace
}  // namespace weightcast
