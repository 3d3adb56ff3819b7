#include "transport/node/versions_place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <span>

#include "base/checksum.h"
#include "base/units.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr double kSpare = 1.1;
constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

/// The number behind `key` in a file of lines "key number".
std::optional<std::uint64_t> number_in(const fs::path& file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t digit = line.find_first_of("0123456789", key.size());
    if (digit != std::string::npos) return std::stoull(line.substr(digit));
  }
  return std::nullopt;
}

/// Of the cgroup that this process is in, version 2; nothing where it has no limit.
std::optional<std::uint64_t> group_free() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    std::optional<std::uint64_t> least;
    // The limits of those above count as well.
    for (fs::path group = line.substr(3);; group = group.parent_path()) {
      const fs::path directory = fs::path("/sys/fs/cgroup") / group.relative_path();
      const auto limit = number_in(directory / "memory.max", "");
      const auto used = number_in(directory / "memory.current", "");
      if (limit && used) least = std::min(least.value_or(kUnlimited), *limit - std::min(*limit, *used));
      if (group == group.parent_path()) return least;
    }
  }
  return std::nullopt;
}

std::uint64_t bytes_below(const fs::path& directory) {
  std::uint64_t bytes = 0;
  std::error_code ignored;
  for (fs::recursive_directory_iterator at(directory, ignored), end; at != end; at.increment(ignored)) {
    struct stat info {};
    if (::lstat(at->path().c_str(), &info) == 0) bytes += std::uint64_t(info.st_blocks) * 512;
  }
  return bytes;
}

}  // namespace

std::string_view to_string(VersionsIn where) {
  switch (where) {
    case VersionsIn::kDisk: return "disk";
    case VersionsIn::kMemory: return "memory";
    case VersionsIn::kAuto: return "auto";
  }
  return "disk";
}

Result<VersionsIn> parse_versions_in(std::string_view text) {
  for (const VersionsIn where : {VersionsIn::kDisk, VersionsIn::kMemory, VersionsIn::kAuto}) {
    if (text == to_string(where)) return where;
  }
  return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("--versions-in {}: auto, memory or disk", text));
}

PlaceChoice choose_place(std::uint64_t version_bytes, std::uint32_t copies, const MemoryRoom& room) {
  if (version_bytes == 0) return {false, "how large a version is will be known at the next start"};
  const auto needed = static_cast<std::uint64_t>(kSpare * static_cast<double>(version_bytes) * copies);
  const std::string need =
      fmt::format("{} copies of {} take {}", copies, format_bytes(version_bytes), format_bytes(needed));
  const auto lacks = [&](std::string_view where, std::uint64_t free) {
    return PlaceChoice{false, fmt::format("{}, and {} has {}", need, where, format_bytes(free))};
  };
  if (room.directory_free < needed) return lacks("the file system in memory", room.directory_free);
  // What else runs there wants some, too.
  const std::uint64_t available = room.host_available - room.host_available / 8;
  if (available < needed) return lacks("the host", available);
  if (room.group_free && *room.group_free < needed) return lacks("the cgroup", *room.group_free);
  return {true, need};
}

fs::path memory_directory_of(const fs::path& memory_dir, const fs::path& state) {
  const std::string path = fs::weakly_canonical(fs::absolute(state)).native();
  const std::string digest = checksum_of(std::as_bytes(std::span(path))).hex();
  return memory_dir / fmt::format("weightcast-{}-{}", ::geteuid(), digest.substr(0, 16));
}

Result<fs::path> make_memory_directory(const fs::path& memory_dir, const fs::path& state) {
  const fs::path path = memory_directory_of(memory_dir, state);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(errno, Op::kOpen, path.native());
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return fail_errno(errno, Op::kOpen, path.native());
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Errc::kNotAllowed, Op::kOpen,
                path.native() +
                    ": another user made it, or may write to it; remove it, or choose another directory with "
                    "--memory-dir");
  }
  // Who may not look into the state directory may not read its versions here.
  struct stat like {};
  if (::stat(state.c_str(), &like) != 0) return fail_errno(errno, Op::kOpen, state.native());
  mode_t mode = like.st_mode & (S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH);
  if (like.st_gid != info.st_gid && ::chown(path.c_str(), static_cast<uid_t>(-1), like.st_gid) != 0) {
    mode &= ~static_cast<mode_t>(S_IRGRP | S_IXGRP);
  }
  if (::chmod(path.c_str(), mode) != 0) return fail_errno(errno, Op::kOpen, path.native());
  return path;
}

MemoryRoom memory_room(const fs::path& memory_dir, const fs::path& versions) {
  const std::uint64_t ours = bytes_below(versions);
  MemoryRoom room{kUnlimited, kUnlimited, std::nullopt};
  struct statvfs info {};
  if (::statvfs(memory_dir.c_str(), &info) == 0)
    room.directory_free = std::uint64_t(info.f_bavail) * info.f_frsize + ours;
  if (const auto kib = number_in("/proc/meminfo", "MemAvailable:")) room.host_available = *kib * kKiB + ours;
  if (const auto free = group_free()) room.group_free = *free + ours;
  return room;
}

std::uint64_t disk_bytes_written() { return number_in("/proc/self/io", "write_bytes:").value_or(0); }

}  // namespace weightcast
