#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weightcast {

/// Where a node keeps the versions that engines read.
enum class VersionsIn : std::uint8_t {
  kDisk,    ///< in the state directory: each version is written to the disk whole
  kMemory,  ///< in memory: the disk gets patches, and a whole version from time to time
  kAuto,    ///< in memory where there is room, else on the disk
};
[[nodiscard]] std::string_view to_string(VersionsIn where);
/// Errors: kInvalidArgument.
[[nodiscard]] Result<VersionsIn> parse_versions_in(std::string_view text);

/// What there is, in bytes. What versions in memory of this node take already counts as free.
struct MemoryRoom {
  std::uint64_t directory_free = 0;         ///< in the file system in memory
  std::uint64_t host_available = 0;         ///< MemAvailable of /proc/meminfo
  std::optional<std::uint64_t> group_free;  ///< below the memory limit of this process's cgroup, if it has one
};

/// Whether `copies` of a version fit in memory with a tenth to spare, and an eighth of the host's memory beside them.
/// `version_bytes`: 0 where no version is known yet. Pure. The second: why, for the log.
struct PlaceChoice {
  bool in_memory = false;
  std::string why;
};
[[nodiscard]] PlaceChoice choose_place(std::uint64_t version_bytes, std::uint32_t copies, const MemoryRoom& room);

/// The directory for versions in memory of the node with that state directory, which exists, below `memory_dir`: made
/// if it is missing. Others may read it who may read the state directory. Errors: kNotAllowed (another user made it, or
/// may write to it), kIo, kNotFound.
[[nodiscard]] Result<std::filesystem::path> make_memory_directory(const std::filesystem::path& memory_dir,
                                                                  const std::filesystem::path& state);
/// Its name, whether or not it is there.
[[nodiscard]] std::filesystem::path memory_directory_of(const std::filesystem::path& memory_dir,
                                                        const std::filesystem::path& state);

/// Reads the host's files; what cannot be read does not limit.
[[nodiscard]] MemoryRoom memory_room(const std::filesystem::path& memory_dir, const std::filesystem::path& versions);

/// Bytes that this process has caused to be written to disks: write_bytes of /proc/self/io. 0 where that is not told.
[[nodiscard]] std::uint64_t disk_bytes_written();

}  // namespace weightcast
