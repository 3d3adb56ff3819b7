#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "proto/local_messages.h"

namespace weightcast {

/// What a daemon tells of itself and, at the origin, of the fleet, at one time. docs/METRICS.md lists the JSON.
struct FleetState {
  std::int64_t unix_ms = 0;
  local::StatusReply status;
  local::VersionsReply versions;
  local::HistoryReply history;  ///< of all publications, without workers; a worker has none
};

/// All of it: what `weightcast status`, `versions` and `history --json` print, in one object, and "unix_ms".
[[nodiscard]] nlohmann::json whole_json(const FleetState& state);

/// What has changed: of each node that has, its name, role and the members that differ; publications that differ,
/// whole; "versions" whole, if they differ; the numbers and texts beside these that differ. Absent if nothing has. A
/// score that moved by less than a hundredth has not: it ages all the time. Pure.
[[nodiscard]] std::optional<nlohmann::json> change_json(const FleetState& before, const FleetState& after);

}  // namespace weightcast
