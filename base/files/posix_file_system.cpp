#include "base/files/posix_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/files/file_users.h"
#include "base/files/unique_fd.h"

namespace weightcast {
namespace {

// More would pin memory of the kernel's for files that nobody has used for long.
constexpr std::size_t kFilesKeptOpenMax = 16384;
constexpr std::size_t kFilesKeptOpenMin = 16;
constexpr mode_t kDirectoryMode = 0755;

std::size_t quarter_of_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFilesKeptOpenMin;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, kFilesKeptOpenMin, kFilesKeptOpenMax);
}

FileInfo info_of(const struct stat& info) {
  FileInfo made;
  made.kind = S_ISREG(info.st_mode)   ? FileInfo::Kind::kFile
              : S_ISDIR(info.st_mode) ? FileInfo::Kind::kDirectory
              : S_ISLNK(info.st_mode) ? FileInfo::Kind::kLink
                                      : FileInfo::Kind::kOther;
  made.size_bytes = static_cast<std::uint64_t>(info.st_size);
  made.modified_ns = std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  made.links = info.st_nlink;
  made.device = info.st_dev;
  made.number = info.st_ino;
  made.executable = (info.st_mode & S_IXUSR) != 0;
  return made;
}

int flags_of(const OpenOptions& options) {
  // Of a FIFO's or a device's other end nobody knows when it comes: without waiting it is opened, and then refused.
  int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (options.write ? O_RDWR : O_RDONLY);
  switch (options.create) {
    case Create::kNever: break;
    case Create::kIfMissing: flags |= O_CREAT; break;
    case Create::kNew: flags |= O_CREAT | O_EXCL; break;
    case Create::kEmpty: flags |= O_CREAT | O_TRUNC; break;
  }
  if (options.append) flags |= O_APPEND;
  if (!options.follow_links) flags |= O_NOFOLLOW;
  return flags;
}

/// Of a call that a user may have no right to: kNotAllowed then.
Error fail_access(int error_number, Op op, const std::string& what) {
  Error error = fail_errno(error_number, op, what);
  if (error_number == EACCES || error_number == EPERM || error_number == EROFS) error.code = Errc::kNotAllowed;
  return error;
}

/// A system call's result, asked for again as long as a signal interrupts it.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

class PosixMapping final : public Mapping {
 public:
  PosixMapping(void* begin, std::size_t size) : begin_(begin), size_(size) {}
  ~PosixMapping() override {
    if (size_ > 0) ::munmap(begin_, size_);
  }
  [[nodiscard]] Bytes bytes() const override { return {static_cast<const std::byte*>(begin_), size_}; }

 private:
  void* begin_;
  std::size_t size_;
};

class PosixFile final : public File {
 public:
  PosixFile(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  ~PosixFile() override { ::close(fd_); }

  Result<std::size_t> read_at(std::uint64_t offset, MutableBytes into) override {
    const ssize_t got =
        uninterrupted([&] { return ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset)); });
    if (got < 0) return failed(Op::kRead);
    return static_cast<std::size_t>(got);
  }

  Result<std::size_t> write_at(std::uint64_t offset, Bytes from) override {
    const ssize_t put =
        uninterrupted([&] { return ::pwrite(fd_, from.data(), from.size(), static_cast<off_t>(offset)); });
    if (put < 0) return failed(Op::kWrite);
    return static_cast<std::size_t>(put);
  }

  Result<std::size_t> append(Bytes from) override {
    const ssize_t put = uninterrupted([&] { return ::write(fd_, from.data(), from.size()); });
    if (put < 0) return failed(Op::kWrite);
    return static_cast<std::size_t>(put);
  }

  Result<FileInfo> info() override {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) return failed(Op::kOpen);
    return info_of(info);
  }

  Status allocate(std::uint64_t size_bytes) override {
    if (uninterrupted([&] { return ::fallocate(fd_, 0, 0, static_cast<off_t>(size_bytes)); }) == 0) return {};
    if (errno == EOPNOTSUPP) return fail(Errc::kUnsupported, Op::kWrite, name_);
    return failed(Op::kWrite);
  }

  Status truncate(std::uint64_t size_bytes) override {
    if (uninterrupted([&] { return ::ftruncate(fd_, static_cast<off_t>(size_bytes)); }) != 0) return failed(Op::kWrite);
    return {};
  }

  Result<std::optional<std::uint64_t>> next_data(std::uint64_t offset) override {
    const off_t data = ::lseek(fd_, static_cast<off_t>(offset), SEEK_DATA);
    if (data >= 0) return std::optional(static_cast<std::uint64_t>(data));
    if (errno == ENXIO) return std::optional<std::uint64_t>();
    return failed(Op::kRead);
  }

  Status sync_data() override {
    if (uninterrupted([&] { return ::fdatasync(fd_); }) != 0) return failed(Op::kSync);
    return {};
  }

  Status lock() override {
    if (uninterrupted([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); }) == 0) return {};
    if (errno == EWOULDBLOCK) return fail(Errc::kBusy, Op::kLock, name_);
    return failed(Op::kLock);
  }

  Status check_unshared() override {
    if (::fcntl(fd_, F_SETLEASE, F_WRLCK) != 0) {
      const bool open_elsewhere = errno == EAGAIN || errno == EACCES;
      return fail(open_elsewhere ? Errc::kBusy : Errc::kUnsupported, Op::kOpen, name_ + ": may be open elsewhere");
    }
    ::fcntl(fd_, F_SETLEASE, F_UNLCK);
    return {};
  }

  void advise_random() override { ::posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM); }

  Result<std::unique_ptr<Mapping>> map() override {
    WC_ASSIGN(const FileInfo now, info());
    void* begin = nullptr;
    if (now.size_bytes > 0) {
      begin = ::mmap(nullptr, now.size_bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd_, 0);
      if (begin == MAP_FAILED) return failed(Op::kOpen);
      ::madvise(begin, now.size_bytes, MADV_SEQUENTIAL);  // advice only: a refusal changes nothing
    }
    return std::unique_ptr<Mapping>(std::make_unique<PosixMapping>(begin, now.size_bytes));
  }

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] int fd() const override { return fd_; }

 private:
  [[nodiscard]] Error failed(Op op) const { return fail_errno(errno, op, name_); }

  const int fd_;
  const std::string name_;
};

/// openat(2). Of a regular file alone it waits, where another process has a lease of it: check_unshared() returns its
/// own at once, and the kernel ends another's after a while.
int open_at(int directory, const char* name, const OpenOptions& options) {
  const int flags = flags_of(options);
  const int fd = ::openat(directory, name, flags, options.permissions);
  if (fd >= 0 || errno != EWOULDBLOCK) return fd;
  struct stat info {};
  const bool is_file = ::fstatat(directory, name, &info, 0) == 0 && S_ISREG(info.st_mode);
  errno = EWOULDBLOCK;
  return is_file ? ::openat(directory, name, flags & ~O_NONBLOCK, options.permissions) : -1;
}

/// The file behind `fd`, which is its own from now on. Errors: kInvalidArgument if it is no regular file.
Result<std::unique_ptr<File>> own_file(int fd, std::string name) {
  auto file = std::make_unique<PosixFile>(fd, std::move(name));
  WC_ASSIGN(const FileInfo info, file->info());
  if (!info.is_file()) {
    const std::string_view kind = info.is_directory() ? "a directory" : "a FIFO, a socket or a device";
    return fail(Errc::kInvalidArgument, Op::kOpen,
                fmt::format("{}: it is {}, not a regular file; name or put there a regular file", file->name(), kind));
  }
  return std::unique_ptr<File>(std::move(file));
}

/// A part of a path could not be opened as a directory.
Error no_way(int error_number, const std::string& path) {
  Error error = fail_errno(error_number, Op::kOpen, path);
  if (error_number == ENOTDIR || error_number == ELOOP) error.code = Errc::kInvalidArgument;
  return error;
}

class PosixDirectory final : public Directory {
 public:
  PosixDirectory(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixDirectory() override { ::close(fd_); }

  Result<std::unique_ptr<File>> open(const std::string& name, const OpenOptions& options) override {
    WC_ASSIGN(const Place place, find(name));
    const int fd = open_at(place.directory(), place.name, options);
    if (fd < 0) return fail_errno(errno, Op::kOpen, path_ + "/" + name);
    return own_file(fd, path_ + "/" + name);
  }

  Result<std::unique_ptr<Directory>> open_directory(const std::string& name) override {
    WC_ASSIGN(const Place place, find(name));
    const int fd = ::openat(place.directory(), place.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return fail_errno(errno, Op::kOpen, path_ + "/" + name);
    return std::unique_ptr<Directory>(std::make_unique<PosixDirectory>(fd, path_ + "/" + name));
  }

  Result<FileInfo> info(const std::string& name) override {
    WC_ASSIGN(const Place place, find(name));
    struct stat info {};
    if (::fstatat(place.directory(), place.name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return fail_errno(errno, Op::kOpen, path_ + "/" + name);
    }
    return info_of(info);
  }

  Status sync() override {
    if (uninterrupted([&] { return ::fsync(fd_); }) != 0) return fail_errno(errno, Op::kSync, path_);
    return {};
  }

 private:
  /// Where a path below this directory ends.
  struct Place {
    UniqueFd opened = {};  // the directory that holds it, if that is not this one
    int ours = -1;
    const char* name = nullptr;  // in that directory; of the path that was given

    [[nodiscard]] int directory() const { return opened.valid() ? opened.get() : ours; }
  };

  Result<Place> find(const std::string& path) const {
    Place place{.ours = fd_, .name = path.c_str()};
    for (std::size_t begin = 0, end = path.find('/'); end != path.npos; begin = end + 1, end = path.find('/', begin)) {
      const std::string part = path.substr(begin, end - begin);
      UniqueFd next(::openat(place.directory(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!next.valid()) return no_way(errno, path_ + "/" + path.substr(0, end));
      place.opened = std::move(next);
      place.name = path.c_str() + end + 1;
    }
    return place;
  }

  const int fd_;
  const std::string path_;  // that it had when it was opened
};

}  // namespace

std::unique_ptr<File> adopt_file(int fd, std::string name) { return std::make_unique<PosixFile>(fd, std::move(name)); }

PosixFileSystem::PosixFileSystem() : FileSystem(quarter_of_limit()) {}

Result<std::unique_ptr<File>> PosixFileSystem::open(const Path& path, const OpenOptions& options) {
  const int fd = open_at(AT_FDCWD, path.c_str(), options);
  if (fd < 0) return fail_access(errno, Op::kOpen, path.native());
  return own_file(fd, path.native());
}

Result<std::unique_ptr<Directory>> PosixFileSystem::open_directory(const Path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return fail_errno(errno, Op::kOpen, path.native());
  return std::unique_ptr<Directory>(std::make_unique<PosixDirectory>(fd, path.native()));
}

Result<std::vector<std::string>> PosixFileSystem::list(const Path& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  if (!directory) return fail_errno(errno, Op::kRead, path.native());
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    // Not shared between threads: readdir() is safe then.
    const dirent* entry = ::readdir(directory.get());  // NOLINT(concurrency-mt-unsafe)
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return fail_errno(errno, Op::kRead, path.native());
  std::sort(names.begin(), names.end());
  return names;
}

Result<FileInfo> PosixFileSystem::info(const Path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return fail_errno(errno, Op::kOpen, path.native());
  return info_of(info);
}

Result<FileInfo> PosixFileSystem::link_info(const Path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return fail_errno(errno, Op::kOpen, path.native());
  return info_of(info);
}

Status PosixFileSystem::make_directory(const Path& path) {
  if (::mkdir(path.c_str(), kDirectoryMode) != 0) return fail_access(errno, Op::kOpen, path.native());
  return {};
}

Status PosixFileSystem::rename(const Path& from, const Path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return {};
  const int error = errno;
  // Of two places below one directory: the first came with an image's layer, and overlayfs moves no directory of those.
  const char* const advice = error == EXDEV ? ": what came with a container's image cannot be moved; use a volume" : "";
  return fail_errno(error, Op::kRename, fmt::format("{} to {}{}", from.native(), to.native(), advice));
}

Status PosixFileSystem::make_link(const Path& target, const Path& path) {
  if (::symlink(target.c_str(), path.c_str()) != 0) return fail_errno(errno, Op::kWrite, path.native());
  return {};
}

Result<FileSystem::Path> PosixFileSystem::read_link(const Path& path) {
  std::error_code error;
  Path target = std::filesystem::read_symlink(path, error);
  if (error) return fail_errno(error.value(), Op::kRead, path.native());
  return target;
}

Status PosixFileSystem::remove(const Path& path) {
  if (::unlink(path.c_str()) != 0) return fail_errno(errno, Op::kWrite, path.native());
  return {};
}

Status PosixFileSystem::remove_directory(const Path& path) {
  if (::rmdir(path.c_str()) != 0) return fail_errno(errno, Op::kWrite, path.native());
  return {};
}

Result<std::uint64_t> PosixFileSystem::free_bytes(const Path& path) {
  struct statvfs space {};
  if (::statvfs(path.c_str(), &space) != 0) return fail_errno(errno, Op::kOpen, path.native());
  return std::uint64_t{space.f_bavail} * space.f_frsize;
}

Status PosixFileSystem::check_writable(const Path& path) {
  if (::access(path.c_str(), W_OK | X_OK) != 0) return fail_access(errno, Op::kOpen, path.native());
  return {};
}

std::string PosixFileSystem::users_of(const std::vector<Path>& paths) { return users_in_proc(paths); }

std::uint64_t PosixFileSystem::process_number() { return static_cast<std::uint64_t>(::getpid()); }

}  // namespace weightcast
