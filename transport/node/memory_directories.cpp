#include "transport/node/memory_directories.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <limits>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/digest/checksum.h"
#include "base/text.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClaim = "claim";
constexpr const char* kLock = "lock";
// As the store makes them (StoreLayout).
constexpr const char* kStateLink = "state";
constexpr const char* kMemoryLink = "memory";
constexpr std::size_t kDigestDigits = 16;
// One is renamed before its gigabytes go, so that a node that begins does not wait for that.
constexpr std::string_view kRemovedSuffix = ".removed";
// The digits of any number of 64 bits, and the end of the line.
constexpr std::size_t kClaimBytesMax = 24;
// A node takes the lock of what it makes at once, and the link to its state directory follows with its first version.
constexpr std::time_t kUnlinkedAge_s = 600;
// Somebody who only looks whether a lock is free has it for an instant.
constexpr int kLockTries = 30;
constexpr auto kLockRetry = std::chrono::milliseconds(10);

std::string own_prefix() { return fmt::format("weightcast-{}-", ::geteuid()); }

/// Whether a node of this user gives a directory that name, or remove_left() does.
bool is_own_name(std::string_view name) {
  const std::string prefix = own_prefix();
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  const std::string_view digest = name.substr(0, kDigestDigits), rest = name.substr(digest.size());
  const bool is_digest = digest.size() == kDigestDigits && digest.find_first_not_of("0123456789abcdef") == digest.npos;
  return is_digest && (rest.empty() || rest == kRemovedSuffix);
}

/// A directory of this user, and no link to one, that nobody else may write to.
bool is_own_directory(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

Error not_own(const fs::path& path) {
  return fail(Errc::kNotAllowed, Op::kOpen,
              path.native() +
                  ": another user made it, or may write to it; remove it, or choose another directory with "
                  "--memory-dir");
}

/// An own, regular file; invalid otherwise. Waits for nobody.
UniqueFd open_own(const fs::path& path, int flags) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, S_IRUSR | S_IWUSR));
  struct stat info {};
  if (!fd.valid()) return fd;
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) {
    errno = EPERM;
    return {};
  }
  return fd;
}

/// Whether `fd` still has that name.
bool is_at(const UniqueFd& fd, const fs::path& path) {
  struct stat ours {
  }, there{};
  return ::fstat(fd.get(), &ours) == 0 && ::lstat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

bool try_lock(const UniqueFd& fd) { return ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0; }

/// The number in an own `claim`; 0 where there is none.
std::uint64_t claim_in(const fs::path& directory) {
  const UniqueFd fd = open_own(directory / kClaim, O_RDONLY);
  std::array<char, kClaimBytesMax> text{};
  if (!fd.valid()) return 0;
  const ssize_t got = ::read(fd.get(), text.data(), text.size());
  if (got <= 0) return 0;
  std::string_view number(text.data(), static_cast<std::size_t>(got));
  if (number.ends_with('\n')) number.remove_suffix(1);
  return parse_number<std::uint64_t>(number).value_or(0);
}

std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
  return a + std::min(b, std::numeric_limits<std::uint64_t>::max() - a);
}

/// Own directories in `memory_dir` with a node's name.
std::vector<fs::path> own_directories(const fs::path& memory_dir) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator at(memory_dir, ignored), end; at != end; at.increment(ignored)) {
    if (is_memory_directory(at->path())) found.push_back(at->path());
  }
  std::ranges::sort(found);
  return found;
}

/// The state directory that it is of; "" if it does not say.
std::string state_of(const fs::path& directory) {
  std::error_code error;
  const fs::path state = fs::read_symlink(directory / kStateLink, error);
  return error ? std::string() : state.native();
}

/// Whether the state directory leads here, or that cannot be told.
bool is_led_to(const fs::path& directory, const fs::path& state) {
  struct stat ours {
  }, there{};
  if (::stat((state / kMemoryLink).c_str(), &there) != 0) return errno != ENOENT && errno != ENOTDIR;
  return ::lstat(directory.c_str(), &ours) == 0 && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

/// Whether no state directory leads to it. A node that runs may have it all the same.
bool is_left(const fs::path& directory) {
  if (directory.native().ends_with(kRemovedSuffix)) return true;
  if (const std::string state = state_of(directory); !state.empty()) return !is_led_to(directory, state);
  struct stat info {};
  return ::lstat(directory.c_str(), &info) == 0 && std::time(nullptr) - info.st_mtime > kUnlinkedAge_s;
}

/// The lock of a directory; not valid if it has none, as an earlier release left it. Errors: kBusy.
Result<UniqueFd> lock_of(const fs::path& directory) {
  UniqueFd lock = open_own(directory / kLock, O_RDWR);
  if (lock.valid() && !try_lock(lock)) return fail(Errc::kBusy, Op::kLock, directory.native() + ": a node has it");
  return lock;
}

/// Of an own directory whose lock this process has, if there is one.
Status remove_own(const fs::path& path) {
  fs::path doomed = path;
  std::error_code error;
  if (!path.native().ends_with(kRemovedSuffix)) {
    doomed += kRemovedSuffix;
    fs::remove_all(doomed, error);  // of a process that was killed
    if (::rename(path.c_str(), doomed.c_str()) != 0) return fail_errno(errno, Op::kRename, path.native());
  }
  fs::remove_all(doomed, error);
  return error ? Status(fail_errno(error.value(), Op::kWrite, doomed.native())) : Status();
}

}  // namespace

fs::path memory_directory_of(const fs::path& memory_dir, const fs::path& state) {
  const std::string path = fs::weakly_canonical(fs::absolute(state)).native();
  const std::string digest = checksum_of(std::as_bytes(std::span(path))).hex();
  // The state directory has a link to it.
  return fs::absolute(memory_dir) / (own_prefix() + digest.substr(0, kDigestDigits));
}

bool is_memory_directory(const fs::path& path) {
  return is_own_name(path.filename().native()) && is_own_directory(path);
}

Result<fs::path> make_memory_directory(const fs::path& memory_dir, const fs::path& state) {
  const fs::path path = memory_directory_of(memory_dir, state);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(errno, Op::kOpen, path.native());
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return fail_errno(errno, Op::kOpen, path.native());
  if (!is_own_directory(path)) return not_own(path);
  // Who may not look into the state directory may not read its versions here.
  struct stat like {};
  if (::stat(state.c_str(), &like) != 0) return fail_errno(errno, Op::kOpen, state.native());
  mode_t mode = like.st_mode & (S_ISGID | S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH);
  if (like.st_gid != info.st_gid && ::chown(path.c_str(), static_cast<uid_t>(-1), like.st_gid) != 0) {
    mode &= ~static_cast<mode_t>(S_ISGID | S_IRGRP | S_IXGRP);
  }
  if (::chmod(path.c_str(), mode) != 0) return fail_errno(errno, Op::kOpen, path.native());
  return path;
}

Result<MemoryDirectory> MemoryDirectory::take(const fs::path& memory_dir, const fs::path& state) {
  fs::path path;
  for (int tried = 0; tried < kLockTries; ++tried) {
    if (tried > 0) std::this_thread::sleep_for(kLockRetry);
    WC_ASSIGN(path, make_memory_directory(memory_dir, state));
    UniqueFd lock = open_own(path / kLock, O_RDWR | O_CREAT);
    // Somebody may remove it at this moment, as one that was left.
    if (!lock.valid() && errno != ENOENT) return fail_errno(errno, Op::kOpen, (path / kLock).native());
    if (lock.valid() && try_lock(lock) && is_at(lock, path / kLock)) {
      return MemoryDirectory(std::move(path), std::move(lock));
    }
  }
  return fail(Errc::kBusy, Op::kLock,
              path.native() +
                  ": another node keeps its versions there, perhaps in another container; give one of them another "
                  "--state path, or another --memory-dir");
}

bool MemoryDirectory::is_there() const { return is_at(lock_, path_ / kLock); }

void MemoryDirectory::remove() {
  if (is_there()) static_cast<void>(remove_own(path_));
  lock_.reset();
}

std::uint64_t bytes_in_memory(const fs::path& directory) {
  if (!is_own_directory(directory)) return 0;
  std::uint64_t bytes = 0;
  std::error_code ignored;
  for (fs::recursive_directory_iterator at(directory, ignored), end; at != end; at.increment(ignored)) {
    struct stat info {};
    if (::lstat(at->path().c_str(), &info) == 0) bytes += std::uint64_t(info.st_blocks) * 512;
  }
  return bytes;
}

void write_claim(const fs::path& directory, std::uint64_t bytes) {
  const UniqueFd fd = open_own(directory / kClaim, O_WRONLY | O_CREAT | O_TRUNC);
  const std::string text = fmt::format("{}\n", bytes);
  if (fd.valid()) static_cast<void>(!::write(fd.get(), text.data(), text.size()));  // else it claims nothing
}

std::uint64_t claimed_by_others(const fs::path& memory_dir, const fs::path& ours) {
  std::uint64_t claimed = 0;
  for (const fs::path& path : own_directories(memory_dir)) {
    if (path == ours) continue;
    const std::uint64_t claim = claim_in(path);
    if (claim > 0) claimed = sum(claimed, claim - std::min(claim, bytes_in_memory(path)));
  }
  return claimed;
}

std::vector<LeftInMemory> left_in_memory(const fs::path& memory_dir) {
  std::vector<LeftInMemory> left;
  for (const fs::path& path : own_directories(memory_dir)) {
    if (!is_left(path) || !lock_of(path).has_value()) continue;
    left.push_back({path, state_of(path), bytes_in_memory(path)});
  }
  return left;
}

Status remove_left(const LeftInMemory& left) {
  WC_ASSIGN(const UniqueFd lock, lock_of(left.path));
  if (!is_own_directory(left.path) || !is_left(left.path)) {
    return fail(Errc::kBusy, Op::kWrite, left.path.native() + ": a node has taken it");
  }
  return remove_own(left.path);
}

Status remove_memory_directory(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Status() : Status(fail_errno(errno, Op::kOpen, path.native()));
  }
  if (!is_own_directory(path)) return not_own(path);
  WC_ASSIGN(const UniqueFd lock, lock_of(path));
  return remove_own(path);
}

bool adopt_moved(const fs::path& memory_dir, const fs::path& state) {
  std::error_code error;
  const fs::path there = fs::read_symlink(state / kMemoryLink, error);
  const fs::path ours = memory_directory_of(memory_dir, state);
  if (error || there == ours || there.parent_path() != ours.parent_path()) return false;
  if (!is_memory_directory(there)) return false;
  const std::string before = state_of(there);
  struct stat info {};
  // Of a copy of a state directory the other one goes on where it is.
  if (before.empty() || ::lstat(before.c_str(), &info) == 0 || errno != ENOENT) return false;
  const Result<UniqueFd> lock = lock_of(there);
  // One that holds something is not replaced.
  return lock.has_value() && ::rename(there.c_str(), ours.c_str()) == 0;
}

}  // namespace weightcast
