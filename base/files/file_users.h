#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace weightcast {

/// What PosixFileSystem::users_of() returns.
[[nodiscard]] std::string users_in_proc(const std::vector<std::filesystem::path>& paths);

}  // namespace weightcast
