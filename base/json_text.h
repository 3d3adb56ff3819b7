#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace weightcast {

/// No file that we read is nested deeper than a tenth of it.
inline constexpr std::size_t kJsonDepthMax = 64;

/// `text` as JSON, or a discarded value, which is neither an object nor an array, if it is none, or if its objects and
/// arrays are nested deeper than kJsonDepthMax. All JSON from outside goes through here: nlohmann copies, prints and
/// compares values by recursion, so that depth from outside would overflow the stack.
[[nodiscard]] inline nlohmann::json parse_json(std::string_view text) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"': in_string = !in_string; break;
      case '\\': i += in_string ? 1 : 0; break;
      case '[':
      case '{':
        if (!in_string && ++depth > kJsonDepthMax) return nlohmann::json::value_t::discarded;
        break;
      case ']':
      case '}':
        // Text that closes more than it opened is no JSON; the parser refuses it.
        if (!in_string && depth > 0) --depth;
        break;
      default: break;
    }
  }
  return nlohmann::json::parse(text, nullptr, false);
}

/// No count and no number that this project gives out gets so far, and the sum of two stays within 64 bits.
inline constexpr std::uint64_t kNaturalMax = std::uint64_t{1} << 62;

/// `json` as a whole number from 0 to `max`; absent if it is none. get<std::uint64_t>() makes a number of -1 and of
/// 1e300, too.
[[nodiscard]] inline std::optional<std::uint64_t> natural_of(const nlohmann::json& json,
                                                             std::uint64_t max = kNaturalMax) {
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > max) return std::nullopt;
  return json.get<std::uint64_t>();
}

/// `json` as text, with `indent` spaces per level, or on one line if that is negative. Bytes that are not UTF-8 become
/// U+FFFD, because names, paths and reasons come from outside, and nlohmann's own dump() throws for such bytes.
[[nodiscard]] inline std::string json_text(const nlohmann::json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace weightcast
