#include "transport/io/disk/posix_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/units.h"

namespace weightcast {
namespace {

constexpr mode_t kFileMode = 0644;

}  // namespace

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Result<File> open_file(const std::filesystem::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, kFileMode);
  if (fd < 0) return fail_errno(errno, Op::kOpen, path.native());
  return File(fd);
}

Result<File> open_file_at(const File& directory, const std::string& name, int flags) {
  const int fd = ::openat(directory.fd(), name.c_str(), flags | O_CLOEXEC, kFileMode);
  if (fd < 0) return fail_errno(errno, Op::kOpen, name);
  return File(fd);
}

Status preallocate(const File& file, std::uint64_t size_bytes, std::string_view what) {
  if (size_bytes == 0) return {};
  int rc = 0;
  do {
    rc = ::fallocate(file.fd(), 0, 0, static_cast<off_t>(size_bytes));
  } while (rc != 0 && errno == EINTR);
  if (rc == 0) return {};
  if (errno != EOPNOTSUPP) return fail_errno(errno, Op::kWrite, what);
  // No blocks can be set aside here: at least do not start what cannot end well.
  struct statvfs space {};
  if (::fstatvfs(file.fd(), &space) == 0 && std::uint64_t{space.f_bavail} * space.f_frsize < size_bytes) {
    return fail_errno(ENOSPC, Op::kWrite, what);
  }
  if (::ftruncate(file.fd(), static_cast<off_t>(size_bytes)) != 0) return fail_errno(errno, Op::kWrite, what);
  return {};
}

Status read_fully(const File& file, std::uint64_t offset, MutableBytes into, std::string_view what) {
  while (!into.empty()) {
    const ssize_t got = ::pread(file.fd(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, Op::kRead, what);
    if (got == 0) return fail(Errc::kCorrupt, Op::kRead, fmt::format("{}: ends at byte {}", what, offset));
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Status write_fully(const File& file, std::uint64_t offset, Bytes from, std::string_view what) {
  while (!from.empty()) {
    const ssize_t put =
        ::pwrite(file.fd(), from.data(), std::min(from.size(), kWriteBytes), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail_errno(errno, Op::kWrite, what);
    from = from.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return {};
}

Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t bytes_max) {
  WC_ASSIGN(const File file, open_file(path, O_RDONLY));
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) return fail_errno(errno, Op::kRead, path.native());
  const auto size_bytes = static_cast<std::uint64_t>(info.st_size);
  if (size_bytes > bytes_max) {
    return fail(Errc::kTooLarge, Op::kRead, fmt::format("{}: {}", path.native(), format_bytes(size_bytes)));
  }
  std::string content(size_bytes, '\0');
  WC_TRY(read_fully(file, 0, std::as_writable_bytes(std::span(content)), path.native()));
  return content;
}

Status rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    return fail_errno(errno, Op::kRename, fmt::format("{} to {}", from.native(), to.native()));
  }
  return {};
}

Status remove_file(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, Op::kWrite, path.native());
  return {};
}

Status sync_directory(const std::filesystem::path& path) {
  WC_ASSIGN(const File directory, open_file(path, O_RDONLY | O_DIRECTORY));
  if (::fsync(directory.fd()) != 0) return fail_errno(errno, Op::kSync, path.native());
  return {};
}

}  // namespace weightcast
