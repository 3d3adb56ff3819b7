#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weightcast {

// What the readers of tokenizer.json's members share.

/// kInvalidArgument, and kUnsupported: "tokenizer: " and `why`.
[[nodiscard]] Error invalid_tokenizer(std::string why);
[[nodiscard]] Error unsupported_tokenizer(std::string why);

/// `json[name]`, or null if it is not there.
[[nodiscard]] const nlohmann::json& json_member(const nlohmann::json& json, const char* name);
/// Its "type": "none" of null, "of no type" of anything else without one.
[[nodiscard]] std::string json_type(const nlohmann::json& json);
/// A member that is true or false; `otherwise` if it is neither.
[[nodiscard]] bool json_flag(const nlohmann::json& json, const char* name, bool otherwise = false);
/// The text of a member, or "".
[[nodiscard]] std::string json_text_of(const nlohmann::json& json, const char* name);

/// A text of the file for a message: its beginning, printable.
[[nodiscard]] std::string shown_text(std::string_view text);

}  // namespace weightcast
