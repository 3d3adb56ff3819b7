#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace weightcast {

/// `text` as a log, a terminal or an error message may show it: valid UTF-8, one line, nothing that a terminal obeys.
/// Bytes that are no UTF-8 and control characters become `\xNN` (line feed, carriage return and tab: `\n`, `\r`, `\t`);
/// characters that turn the direction of writing or end a line become `\u{NNNN}`. All else stays, backslashes too.
[[nodiscard]] std::string printable(std::string_view text);

/// The beginning of `text`: at most `bytes_max` bytes, cut between two characters. In text that is not UTF-8 the cut is
/// at most three bytes earlier.
[[nodiscard]] std::string_view cut_text(std::string_view text, std::size_t bytes_max);

/// The same bytes, for interfaces that take text.
[[nodiscard]] inline std::string_view chars_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Two lower-case hexadecimal digits for each byte.
[[nodiscard]] std::string hex_of(std::span<const std::byte> bytes);

/// The decimal number that is all of `text`; absent if it is none, or out of range.
template <typename Int>
[[nodiscard]] std::optional<Int> parse_number(std::string_view text) {
  Int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace weightcast
