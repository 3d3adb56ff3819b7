#pragma once

#include <string>

#include "base/settings/endpoint.h"
#include "transport/security/join_token.h"
#include "transport/security/node_keys.h"

namespace weightcast {

/// How a machine asks the origin for a certificate.
struct EnrollOrder {
  Endpoint origin;
  JoinToken token;
  std::string name;       ///< "": the token's, or the host's
  std::string host_name;  ///< for a token that leaves the name free
};

/// Makes a private key, and has the origin certify it. The key stays here, and the token's secret goes to nobody but an
/// origin of the token's cluster. Blocks, for half a minute at most. Errors: those of dialling; kNotAllowed (not the
/// token's cluster, or the origin refuses), kTimedOut, and what the origin says.
[[nodiscard]] Result<NodeKeys> enroll(const EnrollOrder& order);

}  // namespace weightcast
