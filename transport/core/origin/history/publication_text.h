#pragma once

#include <string>

#include "transport/core/origin/history/publication_history.h"

namespace weightcast {

/// The log's line at the end of a publication: how long it took, bytes, the origin's phases, the slowest worker with
/// its own, and why.
[[nodiscard]] std::string describe(const PublicationRecord& record);

/// The active member that is furthest from having `version`; null if all have it.
[[nodiscard]] const Member* furthest_behind(const Membership& members, Version version);
/// How far that one is, in words.
[[nodiscard]] std::string where_it_is(const Member& member, Version version);

}  // namespace weightcast
