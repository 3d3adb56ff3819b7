#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>

#include "base/result.h"

namespace weightcast {

/// From now on nobody but this process's user reads what it writes; with `group`, that group's members do, too.
void write_for(std::optional<gid_t> group);

/// Makes a node's directory this user's alone (mode 0700), or open to `group` as well (2750), with what it holds. One
/// that belongs to another user, such as a container's volume, stays as it is. Errors: kNotAllowed (this user is no
/// member of the group), kIo.
[[nodiscard]] Status restrict_directory(const std::filesystem::path& directory, std::optional<gid_t> group);

}  // namespace weightcast
