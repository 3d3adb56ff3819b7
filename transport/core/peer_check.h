#pragma once

#include <string_view>

#include "base/peer_identity.h"
#include "base/result.h"

namespace weightcast {

/// Whether `peer` may speak as a node of that role and name. `message` begins the error's detail. Errors: kNotAllowed.
[[nodiscard]] Status check_speaks_as(const PeerIdentity& peer, Role role, std::string_view name,
                                     std::string_view message);

/// "origin", "worker", "stranger".
[[nodiscard]] std::string_view to_string(Role role);

}  // namespace weightcast
