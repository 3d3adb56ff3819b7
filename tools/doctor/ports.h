#pragma once

#include "base/settings/endpoint.h"
#include "base/time.h"
#include "tools/doctor/finding.h"

namespace weightcast {

/// "CHECK-name" and "CHECK-port": whether that node's name leads to an address, and whether somebody answers there
/// within `limit`. `check`: "origin", "peer".
[[nodiscard]] Findings check_dial(const std::string& check, const Endpoint& endpoint, Duration limit);

/// "listen-port": whether this host may listen there. `is_running`: a daemon does already, and that is no fault.
[[nodiscard]] Finding check_listen(const Endpoint& listen, bool is_running);

/// "listen-address": whether nodes of other hosts could dial `listen`, where `origin` is.
[[nodiscard]] Finding check_reachable(const Endpoint& listen, const Endpoint& origin);

}  // namespace weightcast
