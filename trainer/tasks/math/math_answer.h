#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/settings/words.h"

namespace weightcast {

/// Where a response says its answer.
enum class AnswerMethod {
  kAuto,      ///< the first of: the last \boxed, after the last ####, after the last "answer is", the last number
  kStrict,    ///< verl's GSM8K scorer, strict: text after "#### "
  kFlexible,  ///< verl's GSM8K scorer, flexible: the last number, as text
  kBoxed,     ///< verl's MATH scorer: the last \boxed, as text by MATH's rules
};
constexpr Words<4> words_of(AnswerMethod) { return {"auto", "strict", "flexible", "boxed"}; }

/// A number as an answer gives it.
struct MathNumber {
  std::string value;  ///< exactly; equal numbers have equal texts: "18", "-3/4", "2*sqrt(3)", "1/2*pi"
  std::string unit;   ///< its letters in lower case; "" without one

  bool operator==(const MathNumber&) const = default;
};

/// Reads all of `text` as one number, or as what it is computed from: see MathReader. A unit may follow ("18 dollars",
/// "5 \text{ km}"); a percent sign is one. Absent if it is no number, one of more than 308 digits, or longer than 1
/// KiB.
[[nodiscard]] std::optional<MathNumber> parse_math_number(std::string_view text);

/// Whether two answers are the same: exactly as numbers, choices ("\text{(C)}"), lists and sets in any order, points
/// and intervals, where both are; otherwise as math_strings_equal(). Units count only if both answers have one.
[[nodiscard]] bool answers_equal(std::string_view a, std::string_view b);

/// What `response` gives as its answer by `method`; absent if nothing.
[[nodiscard]] std::optional<std::string> extract_answer(std::string_view response, AnswerMethod method);

/// Whether `response` answers `truth`, compared as `method` does.
[[nodiscard]] bool is_correct_answer(std::string_view response, std::string_view truth, AnswerMethod method);

}  // namespace weightcast
