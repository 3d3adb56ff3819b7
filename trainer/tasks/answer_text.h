#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weightcast {

/// What stands in the last <answer> of `response`; all of it without one.
[[nodiscard]] std::string_view last_answer(std::string_view response);

/// Without white space at both ends.
[[nodiscard]] std::string_view trim(std::string_view text);

/// With ASCII letters in lower case; all other bytes as they are.
[[nodiscard]] std::string ascii_lower(std::string_view text);

/// What stands between the `separator`s in `text`: one part more than there are of them.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, std::string_view separator);

/// `text` with `to` for each `from`.
[[nodiscard]] std::string replaced(std::string_view text, std::string_view from, std::string_view to);

[[nodiscard]] constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
[[nodiscard]] constexpr bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
[[nodiscard]] constexpr bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace weightcast
