#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"

namespace weightcast {

// Recovery deletes only what is proven wrong. A disk that cannot be read today may be read tomorrow.

/// Whether `error` tells what the disk holds: something is missing, or is not what it should be. Every other error
/// tells only that the disk or the system refused now.
[[nodiscard]] bool is_proven_wrong(const Error& error);

/// Adds to an `error` that recovery met at `path` what a person can do about it.
[[nodiscard]] Error cannot_look_at(const std::filesystem::path& path, Error error);

/// The names in a directory; none if there is no such directory. Errors: those that leave it open.
[[nodiscard]] Result<std::vector<std::string>> names_in(FileSystem& files, const std::filesystem::path& path);

/// Whether `path` exists. Errors: those that leave it open.
[[nodiscard]] Result<bool> is_there(FileSystem& files, const std::filesystem::path& path);

}  // namespace weightcast
