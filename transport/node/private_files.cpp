#include "transport/node/private_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "transport/io/log.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kModeBits = 07777;
// Of a directory that a group may look into. What is made there gets its group, too.
constexpr mode_t kDirectoryMode = S_ISGID | S_IRWXU | S_IRGRP | S_IXGRP;

// What engines read of a node, and 'weightcast verify' and 'archive'.
constexpr std::array kRead{"versions", "records", "patches", "run"};

/// False: errno says why not. systemd's RestrictSUIDSGID forbids S_ISGID; there the unit's Group= is that of new files.
bool set_mode(const fs::path& path, mode_t mode) {
  return ::chmod(path.c_str(), mode) == 0 || ::chmod(path.c_str(), mode & ~mode_t{S_ISGID}) == 0;
}

/// Of what was written for one user alone, or for another group. Links have no mode of their own.
void open_to_group(const fs::path& path, gid_t group) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || info.st_uid != ::geteuid()) return;
  if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) return;
  if (info.st_gid != group) static_cast<void>(!::lchown(path.c_str(), static_cast<uid_t>(-1), group));
  const mode_t before = info.st_mode & kModeBits;
  const mode_t mode = before | (S_ISDIR(info.st_mode) ? kDirectoryMode & ~mode_t{S_IRWXU} : mode_t{S_IRGRP});
  if (mode != before) set_mode(path, mode);
}

}  // namespace

void write_for(std::optional<gid_t> group) { ::umask(group ? S_IWGRP | S_IRWXO : S_IRWXG | S_IRWXO); }

Status restrict_directory(const fs::path& directory, std::optional<gid_t> group) {
  struct stat info {};
  // What is wrong with it is for those to tell who write there.
  if (::stat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) return {};
  const bool is_groups = !group || info.st_gid == *group;
  if (!is_groups && ::chown(directory.c_str(), static_cast<uid_t>(-1), *group) != 0) {
    return fail(Errc::kNotAllowed, Op::kConfigure,
                fmt::format("{}: cannot be given to group {} ({}); make this daemon's user a member of it",
                            directory.native(), *group, std::strerror(errno)));
  }
  const mode_t before = info.st_mode & kModeBits;
  const mode_t mode = group ? kDirectoryMode : mode_t{S_IRWXU};
  if ((before != mode || !is_groups) && !set_mode(directory, mode)) {
    return fail_errno(errno, Op::kOpen, directory.native());
  }
  if (!group) {
    if ((before & (S_IRWXG | S_IRWXO)) != 0) {
      log_info("{}: others could look into it (mode {:04o}), and cannot from now on; --api-group lets a group in",
               directory.native(), unsigned{before});
    }
    return {};
  }
  // At an earlier start there may have been no group. Somebody's keys may lie here, too: those stay as they are.
  for (const char* name : kRead) {
    open_to_group(directory / name, *group);
    std::error_code ignored;
    for (fs::recursive_directory_iterator at(directory / name, ignored), end; at != end; at.increment(ignored)) {
      open_to_group(at->path(), *group);
    }
  }
  return {};
}

}  // namespace weightcast
