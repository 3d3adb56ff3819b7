#include "patch/snapshot/write_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

namespace weightcast {
namespace fs = std::filesystem;

Status sync_folder(const fs::path& folder) {
  const std::string name = folder.empty() ? "." : folder.string();
  const int fd = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return fail_errno(errno, Op::kOpen, name);
  const int failed = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (failed != 0) return fail_errno(error, Op::kSync, name);
  return {};
}

Status write_all(int fd, std::string_view file, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return fail_errno(errno, Op::kWrite, file);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status write_new_file(const fs::path& path, const std::function<Status(int fd, std::string_view name)>& write) {
  const std::string temporary = path.string() + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return fail_errno(errno, Op::kOpen, temporary);
  Status done = write(fd, temporary);
  if (done && ::fsync(fd) != 0) done = fail_errno(errno, Op::kSync, temporary);
  ::close(fd);
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0) done = fail_errno(errno, Op::kRename, path.string());
  if (!done) {
    ::unlink(temporary.c_str());
    return done;
  }
  return sync_folder(path.parent_path());
}

NewDirectory::NewDirectory(fs::path path) : path_(std::move(path)), temporary_(path_.string() + ".tmp") {}

NewDirectory::~NewDirectory() {
  std::error_code ignored;
  if (created_) fs::remove_all(temporary_, ignored);
}

Status NewDirectory::create() {
  std::error_code error;
  if (!path_.parent_path().empty()) fs::create_directories(path_.parent_path(), error);
  if (error) return fail_errno(error.value(), Op::kOpen, path_.parent_path().string());
  if (fs::exists(path_, error)) {
    return fail(Errc::kAlreadyExists, Op::kOpen,
                fmt::format("{}: it exists; delete it, or name another", path_.string()));
  }
  created_ = fs::create_directory(temporary_, error);
  if (error) return fail_errno(error.value(), Op::kOpen, temporary_.string());
  if (!created_) {
    return fail(Errc::kAlreadyExists, Op::kOpen,
                fmt::format("{}: it was left half-made; delete it, and do this again", temporary_.string()));
  }
  return {};
}

Status NewDirectory::publish() {
  WC_TRY(sync_folder(temporary_));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return fail_errno(errno, Op::kRename, path_.string());
  created_ = false;
  return sync_folder(path_.parent_path());
}

}  // namespace weightcast
