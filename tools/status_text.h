#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace weightcast {

// What `status`, `history` and `versions` print for a person, of the JSON that the client library gives. Pure.

/// The nodes as a tree, each below its parent. `now_unix_s`: keys that end soon are warned of.
[[nodiscard]] std::string status_text(const nlohmann::json& status, std::int64_t now_unix_s);
/// One publication, with each worker's phases: wc_history() of a version.
[[nodiscard]] std::string publication_text(const nlohmann::json& history);
/// The last publications, a line each: wc_history() of all.
[[nodiscard]] std::string history_text(const nlohmann::json& history);
[[nodiscard]] std::string versions_text(const nlohmann::json& versions);

/// What the words in these mean, for --help.
[[nodiscard]] std::string status_words();
[[nodiscard]] std::string history_words();

}  // namespace weightcast
