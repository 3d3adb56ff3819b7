#include "transport/node/versions_place.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <span>

#include "base/digest/checksum.h"
#include "base/units.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store_layout.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr double kSpare = 1.1;
// A changed cell of two bytes takes four to five: room for steps that change 4 % of the cells.
constexpr double kJournalShare = 0.1;
constexpr std::string_view kNodePrefix = "weightcast-";
// In a node's directory in memory: the bytes that it may come to take.
constexpr const char* kClaim = "claim";
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
std::optional<std::uint64_t> group_free(const fs::path& root) {
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    std::optional<std::uint64_t> least;
    // The limits of those above count as well.
    for (fs::path group = line.substr(3);; group = group.parent_path()) {
      const fs::path directory = root / "sys/fs/cgroup" / group.relative_path();
      const auto limit = number_in(directory / "memory.max", "");
      const auto used = number_in(directory / "memory.current", "");
      if (limit && used) {
        // The page cache makes room for others, and may have taken all there is.
        const std::uint64_t cached = number_in(directory / "memory.stat", "active_file ").value_or(0) +
                                     number_in(directory / "memory.stat", "inactive_file ").value_or(0);
        const std::uint64_t held = *used - std::min(*used, cached);
        least = std::min(least.value_or(kUnlimited), *limit - std::min(*limit, held));
      }
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

/// What other nodes have chosen to take of `memory_dir` and do not take yet: they may begin at the same moment. A
/// directory that this user may not read counts by what lies in it alone, as everything else in memory.
std::uint64_t claimed_by_others(const fs::path& memory_dir, const fs::path& ours) {
  std::uint64_t claimed = 0;
  std::error_code ignored;
  for (fs::directory_iterator at(memory_dir, ignored), end; at != end; at.increment(ignored)) {
    const fs::path& path = at->path();
    if (path == ours || !path.filename().native().starts_with(kNodePrefix)) continue;
    const std::uint64_t claim = number_in(path / kClaim, "").value_or(0);
    if (claim > 0) claimed += claim - std::min(claim, bytes_below(path));
  }
  return claimed;
}

/// Of the versions that the records in a state directory tell of.
std::uint64_t largest_version_bytes(FileSystem& files, const StoreLayout& layout) {
  std::uint64_t largest = 0;
  for (const fs::path& folder : {layout.records(), layout.anchors()}) {
    for (const std::string& name : files.list(folder).value_or(std::vector<std::string>{})) {
      const Result<VersionRecord> record = read_record(files, folder / name);
      if (record.has_value()) largest = std::max(largest, record->manifest.snapshot_bytes());
    }
  }
  return largest;
}

/// Whether versions lie below `root`, whole or partly there. Errors: kIo.
Result<bool> holds_versions(FileSystem& files, const fs::path& root) {
  for (const char* folder : {"versions", "incoming"}) {
    const Result<std::vector<std::string>> names = files.list(root / folder);
    if (names.has_value() && !names->empty()) return true;
    if (!names.has_value() && names.error().code != Errc::kNotFound) return names.error();
  }
  return false;
}

}  // namespace

std::uint64_t bytes_needed(std::uint64_t version_bytes, CopiesKept kept) {
  const double copies = kept.copies + (kept.with_journal ? kJournalShare : 0);
  return static_cast<std::uint64_t>(kSpare * static_cast<double>(version_bytes) * copies);
}

namespace {

/// choose_place() of a file system in memory that is this node's to use.
PlaceChoice fit(std::uint64_t version_bytes, CopiesKept kept, const MemoryRoom& room) {
  const std::uint64_t needed = bytes_needed(version_bytes, kept);
  const std::string need = kept.with_journal ? fmt::format("one copy of {} and what a step overwrites take {}",
                                                           format_bytes(version_bytes), format_bytes(needed))
                                             : fmt::format("{} copies of {} take {}", kept.copies,
                                                           format_bytes(version_bytes), format_bytes(needed));
  const auto lacks = [&](std::string_view where, std::uint64_t free) {
    return PlaceChoice{false, fmt::format("{}, and {} {}", need, where, format_bytes(free))};
  };
  if (room.allowed && *room.allowed < needed) return lacks("--memory-max allows", *room.allowed);
  const auto left = [&](std::uint64_t bytes) { return bytes - std::min(bytes, room.claimed); };
  const std::string others =
      room.claimed == 0 ? std::string() : fmt::format("beside the {} of other nodes ", format_bytes(room.claimed));
  if (left(room.directory_free) < needed) {
    return lacks(fmt::format("{}the file system in memory has", others), left(room.directory_free));
  }
  // What else runs there wants some, too.
  const std::uint64_t available = left(room.host_available - room.host_available / 8);
  if (available < needed) return lacks(fmt::format("{}the host has", others), available);
  if (room.group_free && left(*room.group_free) < needed) {
    return lacks(fmt::format("{}the cgroup has", others), left(*room.group_free));
  }
  const std::uint64_t least =
      std::min({left(room.directory_free), available, room.group_free ? left(*room.group_free) : kUnlimited});
  return {true, fmt::format("{} of {}", need, format_bytes(least))};
}

}  // namespace

PlaceChoice choose_place(std::uint64_t version_bytes, CopiesKept kept, const MemoryRoom& room) {
  if (!room.directory_in_memory) return {false, "--memory-dir is in no file system in memory"};
  if (room.emptied_at_logout) {
    return {false,
            "systemd-logind deletes this user's files in /dev/shm when its last session ends; allow it to linger "
            "(loginctl enable-linger), or give another --memory-dir"};
  }
  return fit(version_bytes, kept, room);
}

fs::path memory_directory_of(const fs::path& memory_dir, const fs::path& state) {
  const std::string path = fs::weakly_canonical(fs::absolute(state)).native();
  const std::string digest = checksum_of(std::as_bytes(std::span(path))).hex();
  return memory_dir / fmt::format("{}{}-{}", kNodePrefix, ::geteuid(), digest.substr(0, 16));
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

bool is_emptied_at_logout(const fs::path& memory_dir, const fs::path& root, uid_t user) {
  constexpr uid_t kSystemUsersMax = 999;
  std::error_code ignored;
  const fs::path shm = "/dev/shm", clean = fs::weakly_canonical(memory_dir, ignored);
  const bool in_shm = std::ranges::mismatch(shm, clean).in1 == shm.end();
  if (user <= kSystemUsersMax || !in_shm) return false;
  if (!fs::exists(root / "run/systemd/seats", ignored)) return false;
  const passwd* const entry = ::getpwuid(user);
  return entry == nullptr || !fs::exists(root / "var/lib/systemd/linger" / entry->pw_name, ignored);
}

MemoryRoom memory_room(const fs::path& memory_dir, const fs::path& versions, const fs::path& root) {
  const std::uint64_t ours = bytes_below(versions);
  MemoryRoom room{.directory_free = kUnlimited, .host_available = kUnlimited};
  struct statfs info {};
  if (::statfs(memory_dir.c_str(), &info) == 0) {
    room.directory_in_memory = info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
    // Of a tmpfs without a limit, and of a ramfs, there are no blocks.
    if (info.f_blocks > 0) room.directory_free = std::uint64_t(info.f_bavail) * std::uint64_t(info.f_bsize) + ours;
  }
  if (const auto kib = number_in(root / "proc/meminfo", "MemAvailable:")) room.host_available = *kib * kKiB + ours;
  if (const auto free = group_free(root)) room.group_free = *free + ours;
  room.emptied_at_logout = is_emptied_at_logout(memory_dir, root, ::geteuid());
  room.claimed = claimed_by_others(memory_dir, versions);
  return room;
}

Result<StorePlace> VersionsPlace::in_memory(std::string why) const {
  WC_TRY(make_directories(files_, options_.state));
  WC_ASSIGN(fs::path directory, make_memory_directory(options_.memory_dir, options_.state));
  return StorePlace{std::move(directory), std::move(why)};
}

Result<std::optional<StorePlace>> VersionsPlace::at_start() const {
  if (options_.versions_in == VersionsIn::kDisk) return StorePlace{{}, "as told"};
  if (options_.versions_in == VersionsIn::kMemory) return in_memory("as told");
  // A move would lose what is not durable, at every start after a kill.
  WC_ASSIGN(const fs::path root, StoreLayout::versions_root_of(files_, options_.state));
  WC_ASSIGN(const bool there, holds_versions(files_, root));
  if (there && root == memory_directory_of(options_.memory_dir, options_.state)) return in_memory("they were there");
  WC_ASSIGN(const bool on_disk, holds_versions(files_, options_.state));
  if (on_disk) return StorePlace{{}, "they were there; --versions-in memory moves them"};
  const std::uint64_t bytes = largest_version_bytes(files_, StoreLayout(files_, options_.state));
  if (bytes == 0) return std::nullopt;
  return for_version(bytes);
}

StorePlace VersionsPlace::for_version(std::uint64_t bytes) const {
  Result<StorePlace> memory = in_memory("");
  if (!memory.has_value()) return {{}, memory.error().detail};
  // Before the look at the others' claims: of two nodes that choose at once, one at least sees the other.
  std::ofstream(memory->memory_directory / kClaim) << bytes_needed(bytes, options_.kept) << '\n';
  const MemoryRoom there = room();
  PlaceChoice choice = choose_place(bytes, options_.kept, there);
  memory->why = std::move(choice.why);
  if (choice.in_memory) return *std::move(memory);
  if (options_.may_keep_one) {
    const PlaceChoice one = choose_place(bytes, kSingleCopy, there);
    // Its files change where they are, which those who read them have to know: only a person can choose it.
    if (one.in_memory) memory->why += fmt::format("; with --single-copy {}", one.why);
  }
  std::error_code ignored;
  fs::remove_all(memory->memory_directory, ignored);
  return {{}, std::move(memory->why)};
}

Status VersionsPlace::check_room(std::uint64_t bytes, std::uint32_t copies) const {
  PlaceChoice choice = fit(bytes, {copies}, room());
  if (choice.in_memory) return {};
  return fail(Errc::kNoSpace, Op::kWrite,
              fmt::format("it comes whole, beside the only copy, which stays: {}; give this host more memory, or start "
                          "with --versions-in disk",
                          choice.why));
}

MemoryRoom VersionsPlace::room() const {
  MemoryRoom room = memory_room(options_.memory_dir, memory_directory_of(options_.memory_dir, options_.state));
  room.allowed = options_.bytes_max;
  return room;
}

std::uint64_t disk_bytes_written() { return number_in("/proc/self/io", "write_bytes:").value_or(0); }

}  // namespace weightcast
