#include "client/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace weightcast::client {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

Error out_of_memory(int error_number, std::uint64_t size_bytes) {
  Error error = fail_errno(error_number, Op::kPublish, fmt::format("shared memory of {} bytes", size_bytes));
  if (error_number == ENOMEM || error_number == EFBIG || error_number == ENOSPC) error.code = Errc::kNoSpace;
  return error;
}

}  // namespace

Result<std::unique_ptr<Region>> Region::create(std::uint64_t size_bytes) {
  const int fd = ::memfd_create("weightcast", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return out_of_memory(errno, size_bytes);
  std::unique_ptr<Region> region(new Region(fd, size_bytes));
  if (::ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) return out_of_memory(errno, size_bytes);
  if (::fcntl(fd, F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) return out_of_memory(errno, size_bytes);
  WC_TRY(region->map());
  return region;
}

Result<std::unique_ptr<Region>> Region::attach(int fd) {
  const auto refuse = [](std::string why) { return fail(Errc::kInvalidArgument, Op::kOpen, std::move(why)); };
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return refuse(fmt::format("descriptor {}: it is not a region; pass what wc_region_fd() gave", fd));
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || info.st_size == 0) return refuse(fmt::format("descriptor {}: an empty region", fd));
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return fail_errno(errno, Op::kOpen, fmt::format("descriptor {}", fd));
  std::unique_ptr<Region> region(new Region(own, static_cast<std::uint64_t>(info.st_size)));
  WC_TRY(region->map());
  return region;
}

Region::~Region() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
  ::close(fd_);
}

Status Region::map() {
  void* const mapped = ::mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED) return out_of_memory(errno, size_bytes_);
  data_ = static_cast<char*>(mapped);
  return {};
}

Status Region::populate() {
  if (::fallocate(fd_, 0, 0, static_cast<off_t>(size_bytes_)) != 0 && errno != EOPNOTSUPP) {
    return out_of_memory(errno, size_bytes_);
  }
#ifdef MADV_POPULATE_WRITE
  if (::madvise(data_, size_bytes_, MADV_POPULATE_WRITE) == 0) return {};
#endif
  // Before Linux 5.14: a write to each page, of what is there.
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (std::uint64_t at = 0; at < size_bytes_; at += page_bytes) {
    volatile char* const byte = data_ + at;
    *byte = *byte;
  }
  return {};
}

}  // namespace weightcast::client
