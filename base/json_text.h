#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace weightcast {

/// `json` as text; with `indent` spaces per level, or on one line. Bytes that are no UTF-8 become U+FFFD: nlohmann's
/// own dump() throws for them, and names, paths and reasons come from outside.
[[nodiscard]] inline std::string json_text(const nlohmann::json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace weightcast
