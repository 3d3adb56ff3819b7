#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/files/file_system.h"

namespace weightcast::bench {

/// The object that lies there, of at most `bytes_max`, if its member `key` is `digest`: so it came of the same
/// configuration. A damaged file is none.
[[nodiscard]] std::optional<nlohmann::json> kept_json(FileSystem& files, const std::filesystem::path& path,
                                                      const char* key, const std::string& digest,
                                                      std::uint64_t bytes_max);

}  // namespace weightcast::bench
