#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weightcast {

/// The scorers that published results were made with, to the letter, so that figures can be compared. Each behaves as
/// the function of verl 0.9 that it names, for any valid UTF-8. tests/oracles/verl_scores.py compares them.

/// `gsm8k.extract_solution(method="strict")`: the number after the last "#### " in the last 300 characters.
[[nodiscard]] std::optional<std::string> extract_strict(std::string_view response);
/// `gsm8k.extract_solution(method="flexible")`: the last number there.
[[nodiscard]] std::optional<std::string> extract_flexible(std::string_view response);
/// `math_reward.last_boxed_only_string` and `remove_boxed`: what the last \boxed holds.
[[nodiscard]] std::optional<std::string> extract_boxed(std::string_view response);
/// `math_reward.strip_string`: the text by MATH's rules for fractions, roots, units, percent and spaces. Absent where
/// the function raises.
[[nodiscard]] std::optional<std::string> math_string_form(std::string_view text);
/// `math_reward.is_equiv`: equal in that form; as they are where one of them has none.
[[nodiscard]] bool math_strings_equal(std::string_view a, std::string_view b);

}  // namespace weightcast
