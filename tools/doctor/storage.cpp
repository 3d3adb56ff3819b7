#include "tools/doctor/storage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/units.h"
#include "transport/node/memory_directories.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUnknownSnapshotBytes = kGiB;  // without one to go by
constexpr std::uint64_t kProbeBytes = 64 * kMiB;
constexpr double kProbeTimeMax_s = 10;
constexpr double kSlow_bytes_per_s = 50e6;

constexpr std::string_view kOverlay = "overlay";

struct FileSystemKind {
  std::string_view name;
  bool lasts = true;
  bool is_local = true;
};

FileSystemKind kind_of(const struct statfs& info) {
  switch (static_cast<unsigned long>(info.f_type)) {
    case TMPFS_MAGIC: return {"tmpfs", false, true};
    case 0x858458f6: return {"ramfs", false, true};
    case NFS_SUPER_MAGIC: return {"NFS", true, false};
    case SMB_SUPER_MAGIC:
    case 0xff534d42: return {"SMB", true, false};
    case V9FS_MAGIC: return {"9p", true, false};
    case FUSE_SUPER_MAGIC: return {"FUSE", true, false};
    case OVERLAYFS_SUPER_MAGIC: return {kOverlay, true, true};
    case EXT4_SUPER_MAGIC: return {"ext4", true, true};
    case XFS_SUPER_MAGIC: return {"XFS", true, true};
    case BTRFS_SUPER_MAGIC: return {"btrfs", true, true};
    default: return {"local disk", true, true};
  }
}

std::optional<struct statfs> file_system_of(const fs::path& path) {
  struct statfs info {};
  if (::statfs(path.c_str(), &info) != 0) return std::nullopt;
  return info;
}

std::uint64_t free_bytes(const struct statfs& info) {
  return std::uint64_t{info.f_bavail} * static_cast<std::uint64_t>(info.f_bsize);
}

/// Makes the directory, and a file in it. Returns errno, or 0.
int try_to_write(const fs::path& directory, UniqueFd& file) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error && !fs::is_directory(directory)) return error.value();
  std::string name = (directory / "weightcast-doctor-XXXXXX").string();
  file.reset(::mkostemp(name.data(), O_CLOEXEC));
  if (!file.valid()) return errno;
  ::unlink(name.c_str());
  return 0;
}

std::string owner_remedy(const fs::path& directory) {
  return fmt::format("sudo install -d -o $(id -un) {}, on a disk that is not mounted read-only", directory.string());
}

Finding check_speed(const UniqueFd& file, std::uint64_t room_bytes) {
  const std::uint64_t all = std::min<std::uint64_t>(kProbeBytes, room_bytes / 2);
  // Not zeros, which some file systems do not write.
  std::vector<char> piece(kMiB);
  std::uint64_t state = 88172645463325252ull;
  for (char& byte : piece) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    byte = static_cast<char>(state);
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::uint64_t written = 0;
  while (written < all && elapsed_s() < kProbeTimeMax_s) {
    const ssize_t put = ::write(file.get(), piece.data(), piece.size());
    if (put <= 0) return fault("state-speed", fmt::format("writing failed: {}", std::strerror(errno)), "dmesg");
    written += static_cast<std::uint64_t>(put);
  }
  if (::fdatasync(file.get()) != 0) {
    return fault("state-speed", fmt::format("syncing failed: {}", std::strerror(errno)), "dmesg");
  }
  const double bytes_per_s = double(written) / std::max(elapsed_s(), 1e-6);
  const std::string what = fmt::format("it writes {}/s, synced", format_bytes(std::uint64_t(bytes_per_s)));
  if (bytes_per_s >= kSlow_bytes_per_s || written < kMiB) return ok("state-speed", what);
  return warning("state-speed", what + "; a version arrives no faster than that",
                 "--versions-in memory, or --state on a local NVMe disk");
}

std::uint64_t snapshot_bytes(const StorageNeeds& needs) {
  return needs.snapshot_bytes > 0 ? needs.snapshot_bytes : kUnknownSnapshotBytes;
}

Finding check_space(const StorageNeeds& needs, bool in_memory, const struct statfs& info) {
  // Of versions in memory the disk has the last one, and the next while that is written.
  const std::uint64_t copies = needs.single_copy || in_memory ? 2 : needs.versions_kept + 2;
  const std::uint64_t needed = snapshot_bytes(needs) * copies, there = free_bytes(info);
  const std::string of = needs.snapshot_bytes > 0
                             ? fmt::format("{} versions of {}", copies, format_bytes(needs.snapshot_bytes))
                             : fmt::format("{} versions of 1 GiB (say --snapshot for yours)", copies);
  const std::string what = fmt::format("{} free, and {} take {}", format_bytes(there), of, format_bytes(needed));
  if (there >= needed) return ok("state-space", what);
  return fault("state-space", what,
               in_memory ? "df -h there; then --state on a larger disk"
                         : "df -h there; then --state on a larger disk, --versions-in memory, --keep 1, or "
                           "--single-copy of a worker");
}

/// Not ok: versions do not go there.
Finding check_memory(const StorageNeeds& needs, const fs::path& state) {
  const std::string remedy =
      fmt::format("--versions-in disk; or mount -o remount,size=90% {} (Docker: --shm-size), or give this host memory",
                  needs.memory.string());
  const auto lacks = [&](const std::string& why) {
    if (needs.versions_in == VersionsIn::kMemory) return fault("memory-directory", why, remedy);
    return warning("memory-directory", why + "; versions lie on the disk", remedy);
  };
  if (::access(needs.memory.c_str(), W_OK) != 0) {
    return lacks(fmt::format("{}: {}", needs.memory.string(), std::strerror(errno)));
  }
  MemoryRoom room = memory_room(needs.memory, memory_directory_of(needs.memory, state));
  room.allowed = needs.memory_bytes_max;
  const PlaceChoice choice =
      choose_place(snapshot_bytes(needs), copies_kept(needs.versions_kept, needs.single_copy), room);
  return choice.in_memory ? ok("memory-directory", choice.why) : lacks(choice.why);
}

}  // namespace

Findings check_storage(const StorageNeeds& needs) {
  Findings findings;
  const fs::path state = fs::absolute(needs.state);
  const std::size_t socket_bytes = (state / "api.sock").string().size();
  if (socket_bytes < sizeof sockaddr_un{}.sun_path) {
    findings.push_back(ok("socket-path", (state / "api.sock").string()));
  } else {
    findings.push_back(fault("socket-path",
                             fmt::format("DIR/api.sock has {} bytes, and a socket's path may have {}", socket_bytes,
                                         sizeof sockaddr_un{}.sun_path - 1),
                             "--state with a shorter path; a symbolic link is one"));
  }
  std::optional<Finding> memory;
  if (needs.versions_in != VersionsIn::kDisk) memory = check_memory(needs, state);
  const bool in_memory = memory && (memory->level == Finding::Level::kOk || needs.versions_in == VersionsIn::kMemory);
  UniqueFd file;
  if (const int error = try_to_write(state, file); error != 0 && error != ENOSPC) {
    findings.push_back(
        fault("state-directory", fmt::format("{}: {}", state.string(), std::strerror(error)), owner_remedy(state)));
  } else {
    findings.push_back(ok("state-directory", state.string()));
    if (const auto info = file_system_of(state)) {
      const FileSystemKind kind = kind_of(*info);
      if (!kind.lasts) {
        findings.push_back(
            fault("state-filesystem",
                  fmt::format("{} is a {}: a restart of the host loses all versions", state.string(), kind.name),
                  "--state on a disk; --versions-in memory has the files in memory and the log on the "
                  "disk"));
      } else if (kind.name == kOverlay) {
        findings.push_back(
            warning("state-filesystem",
                    fmt::format("{} is in a container's own layer (overlay): it goes with the container, and what came "
                                "with its image cannot be moved",
                                state.string()),
                    "--state on a volume"));
      } else if (!kind.is_local) {
        findings.push_back(
            warning("state-filesystem",
                    fmt::format("{} is on {}: locks and leases may not hold there", state.string(), kind.name),
                    "--state on a disk of this host"));
      } else {
        findings.push_back(ok("state-filesystem", std::string(kind.name)));
      }
      findings.push_back(check_space(needs, in_memory, *info));
      if (file.valid()) findings.push_back(check_speed(file, free_bytes(*info)));
    }
  }
  if (memory) findings.push_back(*memory);
  return findings;
}

Finding check_left_in_memory(const fs::path& memory, bool mend) {
  const std::vector<LeftInMemory> all = left_in_memory(memory);
  std::uint64_t bytes = 0;
  std::size_t removed = 0;
  std::string why;
  for (const LeftInMemory& left : all) {
    bytes += left.bytes;
    if (!mend) continue;
    const Status gone = remove_left(left);
    removed += gone.has_value() ? 1 : 0;
    if (!gone.has_value()) why = gone.error().message();
  }
  if (all.empty()) return ok("memory-left", fmt::format("nothing in {} without a state directory", memory.string()));
  const std::string what =
      fmt::format("{} in {} of {} whose state directory is gone, the first of {}", format_bytes(bytes), memory.string(),
                  all.size() == 1 ? "a node" : fmt::format("{} nodes", all.size()),
                  all.front().state.empty() ? "none that is known" : all.front().state);
  if (!mend) return warning("memory-left", what, "weightcast doctor --mend, or the next start of any daemon");
  if (removed == all.size()) return ok("memory-left", "removed " + what);
  return warning("memory-left", fmt::format("{}: {}", what, why),
                 fmt::format("ls -ld {}/weightcast-*", memory.string()));
}

}  // namespace weightcast
