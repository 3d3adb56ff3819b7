#pragma once

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace weightcast {

/// No file that we read is nested deeper than a tenth of it.
inline constexpr std::size_t kJsonDepthMax = 64;

/// What a parser of a text would have to keep: known before it is parsed, and of any bytes.
struct JsonShape {
  std::size_t depth = 0;       ///< of its objects and arrays
  std::size_t word_bytes = 0;  ///< of its longest text or number
};
[[nodiscard]] inline JsonShape json_shape(std::string_view text) {
  JsonShape shape;
  std::size_t depth = 0, word = 0;
  bool in_string = false;
  const auto end_word = [&](std::size_t at) {
    shape.word_bytes = std::max(shape.word_bytes, at - word);
    word = at + 1;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        in_string = !in_string;
        end_word(i);
        break;
      case '\\': i += in_string ? 1 : 0; break;
      case '[':
      case '{':
        if (in_string) break;
        shape.depth = std::max(shape.depth, ++depth);
        end_word(i);
        break;
      case ']':
      case '}':
        if (in_string) break;
        // Text that closes more than it opened is no JSON; the parser refuses it.
        if (depth > 0) --depth;
        end_word(i);
        break;
      case ',':
      case ':':
      case ' ':
      case '\t':
      case '\r':
      case '\n':
        if (!in_string) end_word(i);
        break;
      default: break;
    }
  }
  end_word(text.size());
  return shape;
}

/// `text` as JSON, or a discarded value, which is neither an object nor an array, if it is none, or if its objects and
/// arrays are nested deeper than kJsonDepthMax. All JSON from outside that becomes a tree goes through here: nlohmann
/// copies, prints and compares values by recursion, so that depth from outside would overflow the stack.
[[nodiscard]] inline nlohmann::json parse_json(std::string_view text) {
  if (json_shape(text).depth > kJsonDepthMax) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(text, nullptr, false);
}

/// `json` as text, with `indent` spaces per level, or on one line if that is negative. Bytes that are not UTF-8 become
/// U+FFFD, because names, paths and reasons come from outside, and nlohmann's own dump() throws for such bytes.
[[nodiscard]] inline std::string json_text(const nlohmann::json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace weightcast
