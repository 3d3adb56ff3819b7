#include "patch/snapshot/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace weightcast {
namespace {

std::int64_t modified_ns_of(const struct stat& info) {
  return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  MappedFile file;
  file.path_ = path;
  // O_NONBLOCK: a FIFO must be refused, not waited for.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) return fail_errno(errno, Op::kOpen, path);
  struct stat info {};
  if (::fstat(file.fd_, &info) != 0) return fail_errno(errno, Op::kOpen, path);
  if (!S_ISREG(info.st_mode)) {
    return fail(Errc::kInvalidArgument, Op::kOpen, fmt::format("{}: not a regular file", path));
  }
  file.size_bytes_ = static_cast<std::uint64_t>(info.st_size);
  file.modified_ns_ = modified_ns_of(info);
  if (file.size_bytes_ > 0) {
    void* mapping = ::mmap(nullptr, file.size_bytes_, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.fd_, 0);
    if (mapping == MAP_FAILED) return fail_errno(errno, Op::kOpen, path);
    file.data_ = static_cast<const std::byte*>(mapping);
    ::madvise(mapping, file.size_bytes_, MADV_SEQUENTIAL);  // advice only: a refusal changes nothing
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  close();
  path_ = std::move(other.path_);
  fd_ = std::exchange(other.fd_, -1);
  data_ = std::exchange(other.data_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  modified_ns_ = other.modified_ns_;
  return *this;
}

MappedFile::~MappedFile() { close(); }

void MappedFile::close() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_bytes_);
  if (fd_ >= 0) ::close(fd_);
  data_ = nullptr;
  fd_ = -1;
}

Status MappedFile::read_at(std::uint64_t offset_bytes, MutableBytes out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset_bytes));
    if (got < 0) {
      if (errno == EINTR) continue;
      return fail_errno(errno, Op::kRead, path_);
    }
    if (got == 0) {
      return fail(
          Errc::kCorrupt, Op::kRead,
          fmt::format("{}: ends at byte {} of the {} that it had when it was opened; publish files that nothing "
                      "writes to any more",
                      path_, offset_bytes, size_bytes_));
    }
    offset_bytes += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Status MappedFile::check_unchanged() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return fail_errno(errno, Op::kRead, path_);
  if (static_cast<std::uint64_t>(info.st_size) == size_bytes_ && modified_ns_of(info) == modified_ns_) return {};
  return fail(Errc::kCorrupt, Op::kRead,
              fmt::format("{}: changed while it was being read; publish files that nothing writes to any more", path_));
}

}  // namespace weightcast
