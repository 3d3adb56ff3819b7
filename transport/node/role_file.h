#pragma once

#include <string>

#include "base/files/file_system.h"
#include "base/peer_identity.h"
#include "base/result.h"

namespace weightcast {

/// Errors: kNotAllowed where `state` is that of a node of the other role, by DIR/role, or in a directory of an earlier
/// release by what only one of the two keeps there.
[[nodiscard]] Status check_role(FileSystem& files, const std::string& state, Role role);
/// Writes DIR/role, unless it is there. A disk that is full is told in the log: the role is written at another start.
void keep_role(FileSystem& files, const std::string& state, Role role);

}  // namespace weightcast
