#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/tasks/math/math_answer.h"

namespace weightcast {

/// What an answer means, so that two ways of writing it can be compared.
struct MathForm {
  enum class Kind : std::uint8_t {
    kNumber,
    kChoice,  ///< "C", "(C)", "\text{(C)}"
    kSet,     ///< "\{1, 2\}", "2, 1", "1 or 2": in any order, each once
    kTuple,   ///< "(1, 2)", "[0, \infty)": in this order, with these brackets
    kText,    ///< within a set or a tuple: what is no number
  };

  Kind kind = Kind::kNumber;
  std::string text;  ///< a number's value, a choice's letter, a tuple's brackets, or a text by MATH's rules
  std::string unit;  ///< of a number
  std::vector<MathForm> parts;
};

/// Reads all of `text`. Absent if it is none of these, or longer than 1 KiB.
[[nodiscard]] std::optional<MathForm> read_math_form(std::string_view text);

/// Whether they mean the same. Units count only where both have one.
[[nodiscard]] bool forms_equal(const MathForm& a, const MathForm& b);

/// Without what only sets an answer in type: $...$, \(...\), \text{...} around all of it, \left and \right, a full
/// stop. A text of more than 1 KiB stays as it is.
[[nodiscard]] std::string without_typesetting(std::string_view text);

}  // namespace weightcast
