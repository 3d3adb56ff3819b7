// Answers to problems, as policies and data sets write them: two of them, parted by a line feed. Comparing knows no
// order, and what is a number reads the same again from its value.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trainer/tasks/math/math_answer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view response = text.substr(0, end), truth = text.substr(std::min(end + 1, text.size()));
  WC_CHECK(answers_equal(response, response));
  WC_CHECK(answers_equal(response, truth) == answers_equal(truth, response));
  for (const auto method :
       {AnswerMethod::kAuto, AnswerMethod::kStrict, AnswerMethod::kFlexible, AnswerMethod::kBoxed}) {
    (void)is_correct_answer(response, truth, method);
  }
  const auto number = parse_math_number(response);
  // A longer one is beyond what is read.
  if (!number || number->value.size() > 1024) return 0;
  const auto again = parse_math_number(number->value);
  WC_CHECK(again.has_value() && *again == (MathNumber{number->value, ""}));
  return 0;
}
