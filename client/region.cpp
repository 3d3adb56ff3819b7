#include "client/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace weightcast::client {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
// Of a file, with what stands behind the snapshot.
constexpr std::uint64_t kLargestBytes = std::uint64_t{1} << 62;

Error out_of_memory(int error_number, std::uint64_t size_bytes) {
  Error error = fail_errno(error_number, Op::kPublish, fmt::format("shared memory of {} bytes", size_bytes));
  if (error_number == ENOMEM || error_number == EFBIG || error_number == ENOSPC) error.code = Errc::kNoSpace;
  return error;
}

}  // namespace

/// Shared by processes of one user, any of whom may be wrong: attach() checks it.
struct Region::Footer {
  static constexpr std::uint64_t kBytes = 64;
  static constexpr std::uint64_t kMagic = 0x6e6f6967'65726377;  // "wcregion"

  std::uint64_t magic;
  std::uint64_t size_bytes;
  std::atomic<std::uint64_t> publication;
};

Result<std::shared_ptr<Region>> Region::create(std::uint64_t size_bytes) {
  static_assert(sizeof(Footer) <= Footer::kBytes && std::atomic<std::uint64_t>::is_always_lock_free);
  if (size_bytes > kLargestBytes) return out_of_memory(EFBIG, size_bytes);
  const std::uint64_t file_bytes = (size_bytes + Footer::kBytes - 1) / Footer::kBytes * Footer::kBytes + Footer::kBytes;
  const int fd = ::memfd_create("weightcast", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return out_of_memory(errno, file_bytes);
  std::shared_ptr<Region> region(new Region(fd, file_bytes));
  if (::ftruncate(fd, static_cast<off_t>(file_bytes)) != 0) return out_of_memory(errno, file_bytes);
  if (::fcntl(fd, F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) return out_of_memory(errno, file_bytes);
  WC_TRY(region->map());
  region->size_bytes_ = size_bytes;
  region->footer()->magic = Footer::kMagic;
  region->footer()->size_bytes = size_bytes;
  return region;
}

Result<std::shared_ptr<Region>> Region::attach(int fd) {
  const auto refuse = [fd](std::string_view why) {
    return fail(Errc::kInvalidArgument, Op::kOpen, fmt::format("descriptor {}: {}", fd, why));
  };
  constexpr std::string_view kNone = "it is not a region; pass what wc_region_fd() gave";
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return refuse(kNone);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || info.st_size == 0) return refuse("an empty region");
  const auto file_bytes = static_cast<std::uint64_t>(info.st_size);
  if (file_bytes <= Footer::kBytes || file_bytes % Footer::kBytes != 0) return refuse(kNone);
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return fail_errno(errno, Op::kOpen, fmt::format("descriptor {}", fd));
  std::shared_ptr<Region> region(new Region(own, file_bytes));
  WC_TRY(region->map());
  region->size_bytes_ = region->footer()->size_bytes;
  if (region->footer()->magic != Footer::kMagic || region->size_bytes_ > file_bytes - Footer::kBytes) {
    return refuse(kNone);
  }
  return region;
}

Region::~Region() {
  if (data_ != nullptr) ::munmap(data_, file_bytes_);
  ::close(fd_);
}

Status Region::map() {
  void* const mapped = ::mmap(nullptr, file_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED) return out_of_memory(errno, file_bytes_);
  data_ = static_cast<char*>(mapped);
  return {};
}

Region::Footer* Region::footer() const { return reinterpret_cast<Footer*>(data_ + file_bytes_ - Footer::kBytes); }
std::uint64_t Region::publication() const { return footer()->publication.load(); }
void Region::set_publication(std::uint64_t id) { footer()->publication.store(id); }

Status Region::populate() {
  if (::fallocate(fd_, 0, 0, static_cast<off_t>(file_bytes_)) != 0 && errno != EOPNOTSUPP) {
    return out_of_memory(errno, size_bytes_);
  }
#ifdef MADV_POPULATE_WRITE
  if (::madvise(data_, file_bytes_, MADV_POPULATE_WRITE) == 0) return {};
#endif
  // Before Linux 5.14: a write to each page, of what is there.
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (std::uint64_t at = 0; at < file_bytes_; at += page_bytes) {
    volatile char* const byte = data_ + at;
    *byte = *byte;
  }
  return {};
}

}  // namespace weightcast::client
