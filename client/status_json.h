#pragma once

#include <string>

#include "client/local_messages.h"

namespace weightcast::client {

// What programs read about nodes and versions, on one line. Keys are only ever added.
[[nodiscard]] std::string to_json(const StatusReply& status);
[[nodiscard]] std::string to_json(const VersionsReply& versions);
[[nodiscard]] std::string to_json(const HistoryReply& history);

}  // namespace weightcast::client
