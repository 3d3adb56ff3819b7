#include "trainer/tasks/math/math_answer.h"

#include <gtest/gtest.h>

#include <ctime>

#include "trainer/tasks/math/math_string.h"

namespace weightcast {
namespace {

TEST(MathAnswer, ReadsNumbersOfEveryForm) {
  const std::vector<std::pair<const char*, const char*>> forms = {
      {"18", "18"},
      {"-18", "-18"},
      {"+18", "18"},
      {"1,234,567", "1234567"},
      {"1,\\!234", "1234"},
      {"1{,}234", "1234"},
      {"3.50", "7/2"},
      {".5", "1/2"},
      {"$18", "18"},
      {"\\$18", "18"},
      {"-$18", "-18"},
      {"$-18", "-18"},
      {"18 dollars", "18"},
      {"18.", "18"},
      {"$18.00.", "18"},
      {"25%", "25"},
      {"25\\%", "25"},
      {"3/4", "3/4"},
      {"6/8", "3/4"},
      {"-3/4", "-3/4"},
      {"\\frac{3}{4}", "3/4"},
      {"\\dfrac{3}{4}", "3/4"},
      {"\\frac34", "3/4"},
      {"-\\frac{3}{4}", "-3/4"},
      {"2 1/2", "5/2"},
      {"-2 1/2", "-5/2"},
      {"2\\frac{1}{2}", "5/2"},
      {"5 \\text{ km}", "5"},
      {"5\\mathrm{cm}^{}", "5"},
      {"12 \\text{ cm}^2", "12"},
      {"90^\\circ", "90"},
      {"90^{\\circ}", "90"},
      {"\\(18\\)", "18"},
      {"\\text{18}", "18"},
      {" 7 ", "7"},
      {"x = 7", "7"},
      {"99999999999999999999", "99999999999999999999"},
      {"1.0000000000000000000000", "1"},
      {"0.1000000000000000000001", "1000000000000000000001/10000000000000000000000"},
      {"10^3", "1000"},
      {"10^{3}", "1000"},
      {"10**3", "1000"},
      {"10^{-3}", "1/1000"},
      {"2 \\times 10^3", "2000"},
      {"-2^2", "-4"},
      {"8^{1/3}", "2"},
      {"\\sqrt{9/4}", "3/2"},
      {"sqrt 12", "2*sqrt(3)"},
      {"2 sqrt 3", "2*sqrt(3)"},
      {"\\frac{6}{\\sqrt{3}}", "2*sqrt(3)"},
      {"\\sqrt[3]{-27}", "-3"},
      {"\\frac{1}{1+\\sqrt{2}}", "-1 + sqrt(2)"},
      {"\\sqrt{2}\\cdot\\sqrt 6", "2*sqrt(3)"},
      {"\\left(1+\\sqrt2\\right)^2", "3 + 2*sqrt(2)"},
      {"\\pi/2", "1/2*pi"},
      {"\\frac\\pi2", "1/2*pi"},
      {"0.5π", "1/2*pi"},
      {"4\\pi^2", "4*pi^2"},
      {"3 - 1", "2"},
      {"2(3+4)", "14"},
  };
  for (const auto& [text, value] : forms) {
    const auto number = parse_math_number(text);
    ASSERT_TRUE(number.has_value()) << text;
    EXPECT_EQ(number->value, value) << text;
  }
}

TEST(MathAnswer, RefusesWhatIsNoNumber) {
  for (const char* text :
       {"",    "x",      "2x+1",      "2x",       "12x^2y", "1/0",    "\\frac{1}{0}", "12 and 13",    "--",  "$",
        "1,2", "(1,2)",  "(1,234)",   "2^n",      "2^m",    "2 - 5i", "\\sqrt{-1}",   "\\sqrt{\\pi}", "0^0", "0^{-1}",
        "3:4", "1011_2", "5 \\infty", "\\sqrt12", "3 (4)",  "2 3",    "\\sqrt[3]{2}", "1 \\pm 2"}) {
    EXPECT_FALSE(parse_math_number(text).has_value()) << text;
  }
}

/// What is too large to compute with is never read in part.
TEST(MathAnswer, ReadsALargeNumberWholeOrNotAtAll) {
  EXPECT_FALSE(is_correct_answer("#### 9223372036854775808", "223372036854775808", AnswerMethod::kAuto));
  EXPECT_TRUE(is_correct_answer("#### 9223372036854775808", "9,223,372,036,854,775,808", AnswerMethod::kAuto));
  EXPECT_TRUE(is_correct_answer("so it is 2^64 = 18446744073709551616", "2^{64}", AnswerMethod::kAuto));
  const std::string nines(308, '9'), more(309, '9');
  EXPECT_EQ(parse_math_number(nines)->value, nines);
  EXPECT_FALSE(parse_math_number(more).has_value());
  EXPECT_EQ(extract_answer("#### " + more, AnswerMethod::kAuto), more);
  EXPECT_EQ(extract_answer("it is " + more, AnswerMethod::kAuto), more);
  for (std::size_t digits = 1; digits < more.size(); ++digits) {
    ASSERT_FALSE(is_correct_answer("#### " + more, more.substr(digits), AnswerMethod::kAuto)) << digits;
  }
  EXPECT_TRUE(is_correct_answer("#### " + more, more, AnswerMethod::kAuto)) << "as text";
  EXPECT_FALSE(parse_math_number("2^{1024}").has_value());
  EXPECT_TRUE(parse_math_number("2^{1023}").has_value());
}

TEST(MathAnswer, TellsChoicesWhateverTheirTypesetting) {
  for (const char* text : {"C", "(C)", "\\text{C}", "\\text{(C)}", "\\textbf{(C)}", "(\\text{C})", "$C$", "C."}) {
    EXPECT_TRUE(answers_equal(text, "C")) << text;
    EXPECT_FALSE(answers_equal(text, "D")) << text;
  }
  EXPECT_FALSE(answers_equal("c", "C"));
  EXPECT_TRUE(answers_equal("\\text{Evelyn}", "Evelyn"));
}

TEST(MathAnswer, SetsHaveNoOrderAndPointsHaveOne) {
  EXPECT_TRUE(answers_equal("\\{1, 2, 3\\}", "\\{3,1,2\\}"));
  EXPECT_TRUE(answers_equal("{0.5, 2}", "\\left\\{2,\\frac12\\right\\}"));
  EXPECT_TRUE(answers_equal("\\{1, 1, 2\\}", "\\{1, 2\\}"));
  EXPECT_TRUE(answers_equal("1, -2", "-2, 1"));
  EXPECT_TRUE(answers_equal("x = 1 or x = -2", "-2,1"));
  EXPECT_TRUE(answers_equal("1,000 and 2,000", "2000, 1000"));
  EXPECT_TRUE(answers_equal("\\{(1,2), (3,4)\\}", "\\{(3, 4), (1, 2)\\}"));
  EXPECT_TRUE(answers_equal("(0.5, \\sqrt{12})", "\\left(\\frac12, 2\\sqrt3\\right)"));
  EXPECT_TRUE(answers_equal("[0, \\infty)", "[0,\\infty)"));
  EXPECT_FALSE(answers_equal("\\{1, 2\\}", "\\{1, 2, 3\\}"));
  EXPECT_FALSE(answers_equal("\\{1, 2\\}", "\\{1, 3\\}"));
  EXPECT_FALSE(answers_equal("\\{(1,2)\\}", "\\{(2,1)\\}"));
  EXPECT_FALSE(answers_equal("(1, 2)", "(2, 1)"));
  EXPECT_FALSE(answers_equal("(1, 2)", "[1, 2)"));
  EXPECT_FALSE(answers_equal("(1, 2)", "\\{1, 2\\}"));
  EXPECT_FALSE(answers_equal("(1,234)", "1234"));
  EXPECT_FALSE(answers_equal("1, 2", "12"));
}

TEST(MathAnswer, EqualNumbersAreEqualAnswers) {
  EXPECT_TRUE(answers_equal("0.5", "\\frac{1}{2}"));
  EXPECT_TRUE(answers_equal("$1,000.00", "1000"));
  EXPECT_TRUE(answers_equal("18 dollars", "18"));
  EXPECT_TRUE(answers_equal("5 km", "5 \\text{ km}"));
  EXPECT_FALSE(answers_equal("5 km", "5 miles"));
  EXPECT_FALSE(answers_equal("18", "18.5"));
  EXPECT_TRUE(answers_equal("x = 3\\sqrt2", "3\\sqrt{2}"));
  EXPECT_TRUE(answers_equal("1.0000000000000000000000", "1"));
  EXPECT_TRUE(answers_equal("\\sqrt{12}", "2\\sqrt{3}"));
  EXPECT_TRUE(answers_equal("\\frac{\\pi}{2}", "pi/2"));
  EXPECT_TRUE(answers_equal("10^3", "1,000"));
  EXPECT_FALSE(answers_equal("\\sqrt{12}", "2\\sqrt{2}"));
  EXPECT_FALSE(answers_equal("\\pi", "3.14159265358979"));
  EXPECT_FALSE(answers_equal("1.00000000000000000000001", "1"));
  EXPECT_FALSE(answers_equal("2x", "2"));
  EXPECT_FALSE(answers_equal("5i", "5"));
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
  EXPECT_EQ(extract("so we have 10^3 of them"), "10^3");
  EXPECT_EQ(extract("the answer is 2\\sqrt{3} + x"), "2\\sqrt{3} + x");
  EXPECT_EQ(extract("the answer is \\{1, 2\\}"), "\\{1, 2\\}");
  EXPECT_EQ(extract("Answer: (C)"), "(C)");
  EXPECT_EQ(extract("#### 3 (4 are lost)"), "3");
  EXPECT_EQ(extract("Spiral 5"), "5");
  EXPECT_EQ(extract("nothing"), "none");
  EXPECT_EQ(extract(""), "none");
}

TEST(MathAnswer, TheTruthItselfIsTheAnswerWhereverItStands) {
  for (const std::string truth : {"x^2+1",   "2:30",         "3+4i",      "(1, x)",   "x = 1, y = 2", "2x",
                                  "a_1 = 3", "\\frac{x}{2}", "n!",        "3 \\pm 2", "[1, 2)",       "y = 2x + 1",
                                  "5",       "knight",       "10 or 12",  "x \\le 5", "2^n",          "\\sqrt{x+1}",
                                  "12 m",    "3/4",          "1,000",     "(C)",      "Evelyn",       "7:5",
                                  "AB = 5",  "5 million",    "5 squared", "3\u00b2",  "1011_2"}) {
    for (const std::string form : {"#### ", "The answer is ", "Answer: ", "so\n#### ", ""}) {
      EXPECT_TRUE(is_correct_answer(form + truth, truth, AnswerMethod::kAuto)) << form << truth;
    }
    EXPECT_TRUE(is_correct_answer("The answer is " + truth + ".", truth, AnswerMethod::kAuto)) << truth;
  }
}

TEST(MathAnswer, APartOfAFormulaIsNoAnswer) {
  for (const auto& [said, truth] :
       std::vector<std::pair<std::string, std::string>>{{"x^2+1", "2"},        {"x^2+1", "1"},
                                                        {"2:30", "2"},         {"2:30", "30"},
                                                        {"3+4i", "3"},         {"3+4i", "4"},
                                                        {"2x", "2"},           {"x = 1, y = 2", "1"},
                                                        {"3 or 4", "3"},       {"3 and 4", "3"},
                                                        {"not 5", "5"},        {"more than 5", "5"},
                                                        {"a_1", "1"},          {"2^n", "2"},
                                                        {"f(3)", "3"},         {"3 < x", "3"},
                                                        {"1, y", "1"},         {"x2", "2"},
                                                        {"3 \\pm 2", "3"},     {"7/x", "7"},
                                                        {"2\\sqrt{x}", "2"},   {"negative 5", "5"},
                                                        {"5 million", "5"},    {"5 squared", "5"},
                                                        {"3\u00b2", "3"},      {"5 million dollars", "5"},
                                                        {"5 and a half", "5"}, {"3\u2074", "3"},
                                                        {"3\u00bd", "3"},      {"2\u03c0", "2"}}) {
    for (const std::string form : {"#### ", "The answer is ", "Answer: "}) {
      EXPECT_FALSE(is_correct_answer(form + said, truth, AnswerMethod::kAuto)) << form << said << " for " << truth;
    }
  }
  EXPECT_FALSE(is_correct_answer("we get x^2+1", "1", AnswerMethod::kAuto));
  EXPECT_FALSE(is_correct_answer("at 2:30", "30", AnswerMethod::kAuto));
  EXPECT_FALSE(is_correct_answer("it is 3+4i", "4", AnswerMethod::kAuto));
}

TEST(MathAnswer, WordsAndUnitsBesideANumberAreNone) {
  for (const std::string said :
       {"18 apples", "**18**", "18 apples per day.", "exactly 18", "18, because 5 is odd.", "18 (4 are lost)",
        "$18$ apples", "18 square-feet", "18 cm\u00b2", "18 pieces", "18 oranges", "18个"}) {
    EXPECT_TRUE(is_correct_answer("#### " + said, "18", AnswerMethod::kAuto)) << said;
  }
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

// Hostile texts take a bounded time: processor time, as the machine may be busy.
// Under a sanitizer each byte takes twenty times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kLongBytes = std::size_t{1} << 16;
constexpr std::clock_t kLongTime = 100 * CLOCKS_PER_SEC;
#else
constexpr std::size_t kLongBytes = std::size_t{1} << 20;
constexpr std::clock_t kLongTime = 5 * CLOCKS_PER_SEC;
#endif

TEST(MathAnswer, TakesAMegabyteOfAnythingInATime) {
  for (const char* unit : {"9",
                           "$",
                           "9,",
                           "\\boxed{",
                           "\\frac",
                           "- ",
                           "#### ",
                           "answer is ",
                           "1/",
                           "2\\frac{",
                           "9^",
                           "(",
                           "{",
                           "\\sqrt{",
                           "2\\sqrt{2}+",
                           "\\text{",
                           "(1,",
                           "9 ",
                           "\\frac{9^{99}}",
                           "x=",
                           "99**",
                           "\\sqrt[9]{9}*",
                           "1 or "}) {
    std::string text;
    while (text.size() < kLongBytes) text += unit;
    const std::clock_t before = std::clock();
    for (const auto method :
         {AnswerMethod::kAuto, AnswerMethod::kStrict, AnswerMethod::kFlexible, AnswerMethod::kBoxed}) {
      (void)is_correct_answer(text, "1", method);
    }
    // The longest that is read as a number.
    const std::string longest = text.substr(0, 1024);
    (void)answers_equal(longest, longest.substr(1));
    (void)answers_equal("\\{" + longest.substr(0, 1000) + "\\}", "(" + longest.substr(0, 1000) + ")");
    EXPECT_LT(std::clock() - before, kLongTime) << unit;
  }
  // The dearest expressions: sums of many roots, and numbers that only just fit.
  std::string roots = "1", numbers = "1";
  for (int i = 2; roots.size() < 900; ++i) roots += "+\\sqrt{" + std::to_string(i) + "}";
  for (int i = 0; i < 4; ++i) numbers += "*\\sqrt{" + std::string(150, '7') + "}/" + std::string(70, '3');
  for (const std::string& text : {roots, "(" + roots + ")^9", numbers,
                                  std::string("(\\sqrt2+\\sqrt3+\\sqrt5+\\sqrt7)^{512}*(\\sqrt2+\\sqrt3)^{999}")}) {
    const std::clock_t before = std::clock();
    (void)parse_math_number(text);
    EXPECT_LT(std::clock() - before, 2 * CLOCKS_PER_SEC) << text;
  }
}

}  // namespace
}  // namespace weightcast
