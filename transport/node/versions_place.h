#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/files/file_system.h"
#include "base/result.h"
#include "base/settings/words.h"
#include "transport/io/store/store.h"
#include "transport/node/memory_directories.h"

namespace weightcast {

/// Where a node keeps the versions that engines read.
enum class VersionsIn : std::uint8_t {
  kDisk,    ///< in the state directory: each version is written to the disk whole
  kMemory,  ///< in memory: an origin's disk gets a whole version from time to time
  kAuto,    ///< in memory where there is room for the first one and those beside it, else on the disk
};
constexpr Words<3> words_of(VersionsIn) { return {"disk", "memory", "auto"}; }

/// What there is, in bytes. What versions in memory of this node take already counts as free.
struct MemoryRoom {
  bool directory_in_memory = true;                         ///< whether it is one: a tmpfs
  bool emptied_at_logout = false;                          ///< of this user's files: systemd-logind's RemoveIPC
  std::uint64_t directory_free = 0;                        ///< in that file system
  std::uint64_t host_available = 0;                        ///< MemAvailable of /proc/meminfo
  std::optional<std::uint64_t> group_free = std::nullopt;  ///< below the memory limit of this process's cgroup
  std::optional<std::uint64_t> allowed = std::nullopt;     ///< --memory-max
  std::uint64_t claimed = 0;  ///< that other nodes of this user have chosen, and not taken yet
};

/// What a node has of a version at once.
struct CopiesKept {
  std::uint32_t copies = 0;
  bool with_patch = false;  ///< of a step: a tenth of a version
};
/// With --single-copy, while no version arrives whole.
inline constexpr CopiesKept kSingleCopy{1, true};
/// By --keep and --single-copy.
[[nodiscard]] constexpr CopiesKept copies_kept(std::uint32_t versions_kept, bool single_copy) {
  return single_copy ? kSingleCopy : CopiesKept{versions_kept + 1};
}

/// What that takes in memory, with a tenth to spare.
[[nodiscard]] std::uint64_t bytes_needed(std::uint64_t version_bytes, CopiesKept kept);

/// Whether it fits, with an eighth of the host's memory beside it. Pure.
struct PlaceChoice {
  bool in_memory = false;
  std::string why;  ///< for people
};
[[nodiscard]] PlaceChoice choose_place(std::uint64_t version_bytes, CopiesKept kept, const MemoryRoom& room);

/// Whether systemd-logind deletes what that user has in `memory_dir` when its last session ends: by default what is in
/// /dev/shm, unless the user lingers or is the system's (PostgreSQL's manual, "systemd RemoveIPC"). `root`: see below.
[[nodiscard]] bool is_emptied_at_logout(const std::filesystem::path& memory_dir, const std::filesystem::path& root,
                                        uid_t user);

/// Reads the host's files, which are below `root`; what cannot be read does not limit. `versions` is this node's own
/// directory.
[[nodiscard]] MemoryRoom memory_room(const std::filesystem::path& memory_dir, const std::filesystem::path& versions,
                                     const std::filesystem::path& root = "/");

/// Decides for one node where its versions lie.
class VersionsPlace {
 public:
  struct Options {
    VersionsIn versions_in = VersionsIn::kAuto;
    std::filesystem::path state;
    std::filesystem::path memory_dir;
    CopiesKept kept;
    std::optional<std::uint64_t> bytes_max = std::nullopt;
    bool may_keep_one = false;  ///< a worker without --single-copy: where that would fit, the reason says so
  };
  /// `files` outlives this.
  VersionsPlace(FileSystem& files, Options options) : files_(files), options_(std::move(options)) {}

  /// At the start of a daemon. Removes what other nodes have left in memory. With kAuto versions stay where they are;
  /// without any, what is known of their size decides. Nothing: their size is not known yet. Errors: those of
  /// MemoryDirectory::take(); kIo.
  [[nodiscard]] Result<std::optional<StorePlace>> at_start() const;
  /// With kAuto, of a node that has no version, for one of that size. Any thread.
  [[nodiscard]] StorePlace for_version(std::uint64_t bytes) const;
  /// Whether memory has room for so many copies of a version of that size, those that are here included. Any thread.
  /// Errors: kNoSpace.
  [[nodiscard]] Status check_room(std::uint64_t bytes, std::uint32_t copies) const;
  /// Whether somebody has deleted the directory in memory that was given out, or what it holds. Any thread.
  [[nodiscard]] bool is_deleted() const;
  /// Versions lie on the disk, which has what was in memory: that goes.
  void give_up_memory() const;

 private:
  void remove_what_is_left() const;
  [[nodiscard]] Result<StorePlace> in_memory(std::string why) const;
  [[nodiscard]] MemoryRoom room() const;

  FileSystem& files_;
  const Options options_;
  mutable std::mutex mutex_;
  mutable std::optional<MemoryDirectory> held_;  ///< guarded by mutex_
};

/// One of the folders that a store in `state` works in and that somebody has deleted under it; "" while all are there,
/// or all of `state` is gone: who deletes that wants no node any more. Blocks.
[[nodiscard]] std::filesystem::path deleted_folder(FileSystem& files, const std::filesystem::path& state);

/// Bytes that this process has caused to be written to disks: write_bytes of /proc/self/io. 0 where that is not told.
[[nodiscard]] std::uint64_t disk_bytes_written();

}  // namespace weightcast
