#pragma once

#include <filesystem>
#include <string>

#include "patch/snapshot/file_table.h"

namespace weightcast {

/// The processes that have one of the files under `path` open or mapped, as a person reads them: "python3 (process
/// 71)", several with commas; "" if none is found. Only those that this process may look into: of its own user, on its
/// own host or in its own container. Looks at all of /proc: blocks, for milliseconds.
[[nodiscard]] std::string users_of(const std::filesystem::path& path, const FileTable& table);

}  // namespace weightcast
