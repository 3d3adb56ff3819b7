#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proto/local_messages.h"

namespace weightcast::local {

// What programs read about nodes and versions, of the messages that tell it. Keys are only ever added.
[[nodiscard]] nlohmann::json json_of(const NodeStatus& node);
[[nodiscard]] nlohmann::json json_of(const StatusReply& status);
[[nodiscard]] nlohmann::json json_of(const VersionsReply& versions);
[[nodiscard]] nlohmann::json json_of(const PublicationEntry& publication);
[[nodiscard]] nlohmann::json json_of(const HistoryReply& history);

/// The same as text, on one line.
template <typename Reply>
[[nodiscard]] std::string to_json(const Reply& reply);

}  // namespace weightcast::local
