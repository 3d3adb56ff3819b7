#include "transport/node/versions_place.h"

#include <fmt/format.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "transport/io/log.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store_layout.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr double kSpare = 1.1;
// A changed cell of two bytes takes four to five: room for the patches of steps that change 4 % of the cells.
constexpr double kPatchShare = 0.1;
constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

constexpr std::string_view kDigits = "0123456789";

/// The number behind `key` in a file of the kernel's, of lines "key number".
std::optional<std::uint64_t> number_in(const fs::path& file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t digit = line.find_first_of(kDigits, key.size());
    if (digit == line.npos) continue;
    const std::size_t end = std::min(line.find_first_not_of(kDigits, digit), line.size());
    return parse_number<std::uint64_t>(std::string_view(line).substr(digit, end - digit));
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

/// Of the versions that the records in a state directory tell of.
std::uint64_t largest_version_bytes(FileSystem& files, const StoreLayout& layout) {
  std::uint64_t largest = 0;
  for (const std::string& name : files.list(layout.records()).value_or(std::vector<std::string>{})) {
    const Result<VersionRecord> record = read_record(files, layout.records() / name);
    if (record.has_value()) largest = std::max(largest, record->manifest.snapshot_bytes());
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
  const double copies = kept.copies + (kept.with_patch ? kPatchShare : 0);
  return static_cast<std::uint64_t>(kSpare * static_cast<double>(version_bytes) * copies);
}

namespace {

/// choose_place() of a file system in memory that is this node's to use.
PlaceChoice fit(std::uint64_t version_bytes, CopiesKept kept, const MemoryRoom& room) {
  const std::uint64_t needed = bytes_needed(version_bytes, kept);
  const std::string need =
      kept.with_patch
          ? fmt::format("one copy of {} and a step's patch take {}", format_bytes(version_bytes), format_bytes(needed))
          : fmt::format("{} copies of {} take {}", kept.copies, format_bytes(version_bytes), format_bytes(needed));
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
  const std::uint64_t ours = bytes_in_memory(versions);
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
  const std::lock_guard guard(mutex_);
  if (!held_ || !held_->is_there()) {
    held_.reset();
    Result<MemoryDirectory> taken = MemoryDirectory::take(options_.memory_dir, options_.state);
    if (!taken.has_value() && taken.error().code == Errc::kBusy) {
      // Mostly it is the daemon that has the state directory, too, and that says who it is.
      WC_TRY(StoreLayout(files_, options_.state).acquire());
    }
    if (!taken.has_value()) return taken.error();
    held_ = *std::move(taken);
  }
  return StorePlace{held_->path(), std::move(why)};
}

bool VersionsPlace::is_deleted() const {
  const std::lock_guard guard(mutex_);
  return held_ && !held_->is_there();
}

fs::path deleted_folder(FileSystem& files, const fs::path& state) {
  // A disk that does not say is none from which something was deleted.
  const auto is_gone = [&](const fs::path& path) {
    const Result<FileInfo> info = files.info(path);
    return !info.has_value() && info.error().code == Errc::kNotFound;
  };
  const Result<fs::path> root = StoreLayout::versions_root_of(files, state);
  if (!root.has_value() || is_gone(state)) return {};
  const StoreLayout on_disk(files, state);
  const StoreLayout layout = *root == state ? on_disk : on_disk.in_memory_at(*root);
  for (fs::path folder : {layout.versions(), layout.records(), layout.incoming(), layout.patches(), layout.trash()}) {
    if (is_gone(folder)) return folder;
  }
  return {};
}

void VersionsPlace::give_up_memory() const {
  const std::lock_guard guard(mutex_);
  if (held_) return std::exchange(held_, std::nullopt)->remove();
  const Status removed = remove_memory_directory(memory_directory_of(options_.memory_dir, options_.state));
  if (!removed.has_value()) log_warning("{}", removed.error().message());
}

void VersionsPlace::remove_what_is_left() const {
  for (const LeftInMemory& left : left_in_memory(options_.memory_dir)) {
    const Status removed = remove_left(left);
    if (removed.has_value()) {
      log_info("{} in {} removed: no state directory leads there any more{}", format_bytes(left.bytes),
               left.path.native(), left.state.empty() ? "" : fmt::format(", it was {}", printable(left.state)));
    } else if (removed.error().code != Errc::kBusy) {
      log_warning("{}", removed.error().message());
    }
  }
}

Result<std::optional<StorePlace>> VersionsPlace::at_start() const {
  const bool adopted = options_.versions_in != VersionsIn::kDisk && adopt_moved(options_.memory_dir, options_.state);
  std::optional<StorePlace> there_before;
  if (adopted) {
    WC_ASSIGN(there_before, in_memory("they were there, before the state directory was moved"));
  }
  remove_what_is_left();
  if (options_.versions_in == VersionsIn::kDisk) return StorePlace{{}, "as told"};
  if (options_.versions_in == VersionsIn::kMemory) return in_memory("as told");
  if (there_before) return there_before;
  // A move would lose what the disk does not have.
  WC_ASSIGN(const fs::path root, StoreLayout::versions_root_of(files_, options_.state));
  WC_ASSIGN(const bool there, holds_versions(files_, root));
  if (there && root == memory_directory_of(options_.memory_dir, options_.state)) return in_memory("they were there");
  // Where versions were in memory the disk has a copy of one.
  WC_ASSIGN(const bool on_disk, holds_versions(files_, options_.state));
  if (on_disk && root == options_.state) return StorePlace{{}, "they were there; --versions-in memory moves them"};
  const std::uint64_t bytes = largest_version_bytes(files_, StoreLayout(files_, options_.state));
  if (bytes == 0) return std::nullopt;
  return for_version(bytes);
}

StorePlace VersionsPlace::for_version(std::uint64_t bytes) const {
  Result<StorePlace> memory = in_memory("");
  if (!memory.has_value()) return {{}, memory.error().detail};
  // Before the look at the others' claims: of two nodes that choose at once, one at least sees the other.
  write_claim(memory->memory_directory, bytes_needed(bytes, options_.kept));
  const MemoryRoom there = room();
  PlaceChoice choice = choose_place(bytes, options_.kept, there);
  memory->why = std::move(choice.why);
  if (choice.in_memory) return *std::move(memory);
  if (options_.may_keep_one) {
    const PlaceChoice one = choose_place(bytes, kSingleCopy, there);
    // Its files change where they are, which those who read them have to know: only a person can choose it.
    if (one.in_memory) memory->why += fmt::format("; with --single-copy {}", one.why);
  }
  give_up_memory();
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
