#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace weightcast {

/// `json` as text, with `indent` spaces per level, or on one line if that is negative. Bytes that are not UTF-8 become
/// U+FFFD, because names, paths and reasons come from outside, and nlohmann's own dump() throws for such bytes.
[[nodiscard]] inline std::string json_text(const nlohmann::json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace weightcast
