#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weightcast {

/// A number exactly. Invariant: `denominator` is positive, and the two have no common divisor.
struct Rational {
  std::int64_t numerator = 0;
  std::int64_t denominator = 1;

  bool operator==(const Rational&) const = default;
};

/// Where a response says its answer.
enum class AnswerMethod {
  kAuto,      ///< the first of: the last \boxed, after the last ####, after the last "answer is", the last number
  kStrict,    ///< verl's GSM8K scorer, strict: text after "#### "
  kFlexible,  ///< verl's GSM8K scorer, flexible: the last number, as text
  kBoxed,     ///< verl's MATH scorer: the last \boxed, as text by MATH's rules
};

/// Reads all of `text` as one number: "1,234.50", "$18", "-3/4", "\frac{3}{4}", "2 1/2", "25%", with a unit or without
/// ("18 dollars", "5 \text{ km}"). A percent sign is a unit. `unit`, if given, takes the unit's letters in lower case.
/// Absent if it is no number, or one beyond 64 bits.
[[nodiscard]] std::optional<Rational> parse_math_number(std::string_view text, std::string* unit = nullptr);

/// Whether two answers are the same: as numbers where both are, otherwise as math_strings_equal(). Units count only if
/// both answers have one.
[[nodiscard]] bool answers_equal(std::string_view a, std::string_view b);

/// What `response` gives as its answer by `method`; absent if nothing.
[[nodiscard]] std::optional<std::string> extract_answer(std::string_view response, AnswerMethod method);

/// Whether `response` answers `truth`, compared as `method` does.
[[nodiscard]] bool is_correct_answer(std::string_view response, std::string_view truth, AnswerMethod method);

}  // namespace weightcast
