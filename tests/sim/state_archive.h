#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/files/file_system.h"

namespace weightcast::sim {

// A directory with everything in it, as one file that git keeps whole: empty directories, links and holes included.
// Names are in order and relative to the directory:
//
//   directory NAME\n
//   link NAME TARGET\n
//   file NAME SIZE\n, then for each run of pages that were written: data OFFSET LENGTH\n, the bytes, \n

[[nodiscard]] Result<std::string> pack_directory(FileSystem& files, const std::filesystem::path& directory);

/// Errors: kCorrupt when `archive` is none, those of the file system.
[[nodiscard]] Status unpack_directory(FileSystem& files, std::string_view archive,
                                      const std::filesystem::path& directory);

}  // namespace weightcast::sim
