#pragma once

#include <string>
#include <string_view>

namespace weightcast {

/// What stands in the last <answer> of `response`; all of it without one.
[[nodiscard]] std::string_view last_answer(std::string_view response);

/// Without white space at both ends.
[[nodiscard]] std::string_view trim(std::string_view text);

/// With ASCII letters in lower case; all other bytes as they are.
[[nodiscard]] std::string ascii_lower(std::string_view text);

[[nodiscard]] constexpr bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace weightcast
