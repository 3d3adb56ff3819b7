#include "client/region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace weightcast::client {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
// Of a file, with what stands behind the snapshot.
constexpr std::uint64_t kLargestBytes = std::uint64_t{1} << 62;
// Of the parts that are not done, an error names so many.
constexpr std::size_t kNamedMax = 8;

Error out_of_memory(int error_number, std::uint64_t size_bytes) {
  Error error = fail_errno(error_number, Op::kPublish, fmt::format("shared memory of {} bytes", size_bytes));
  if (error_number == ENOMEM || error_number == EFBIG || error_number == ENOSPC) error.code = Errc::kNoSpace;
  return error;
}

}  // namespace

/// Shared by processes, any of whom may be wrong: attach() checks it.
struct Region::Footer {
  static constexpr std::uint64_t kBytes = 64;
  static constexpr std::uint64_t kBehindBytes = kBytes + kPartsMax * sizeof(std::uint64_t);  // with the ledger
  static constexpr std::uint64_t kMagic = 0x326f6967'65726377;                               // "wcregio2"

  std::uint64_t magic;
  std::uint64_t size_bytes;
  std::uint64_t memory;
  std::atomic<std::uint64_t> publication;
  std::atomic<std::uint64_t> content_bytes;
  std::atomic<std::uint32_t> parts;
};

Result<std::uint64_t> fresh_id() {
  std::uint64_t id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof id, 0) != sizeof id && errno != EINTR) {
      return fail_errno(errno, Op::kPublish, "a number for the region");
    }
  }
  return id;
}

Result<std::shared_ptr<Region>> Region::create(std::uint64_t size_bytes) {
  static_assert(sizeof(Footer) <= Footer::kBytes && std::atomic<std::uint64_t>::is_always_lock_free);
  if (size_bytes > kLargestBytes) return out_of_memory(EFBIG, size_bytes);
  const std::uint64_t file_bytes =
      (size_bytes + Footer::kBytes - 1) / Footer::kBytes * Footer::kBytes + Footer::kBehindBytes;
  WC_ASSIGN(const std::uint64_t memory, fresh_id());
  UniqueFd fd(::memfd_create("weightcast", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return out_of_memory(errno, file_bytes);
  std::shared_ptr<Region> region(new Region(std::move(fd), file_bytes));
  if (::ftruncate(region->fd(), static_cast<off_t>(file_bytes)) != 0) return out_of_memory(errno, file_bytes);
  if (::fcntl(region->fd(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) return out_of_memory(errno, file_bytes);
  WC_TRY(region->map());
  region->size_bytes_ = size_bytes;
  region->footer()->magic = Footer::kMagic;
  region->footer()->size_bytes = size_bytes;
  region->footer()->memory = memory;
  region->footer()->content_bytes = size_bytes;
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
  if (file_bytes <= Footer::kBehindBytes || file_bytes % Footer::kBytes != 0) return refuse(kNone);
  UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return fail_errno(errno, Op::kOpen, fmt::format("descriptor {}", fd));
  std::shared_ptr<Region> region(new Region(std::move(own), file_bytes));
  WC_TRY(region->map());
  region->size_bytes_ = region->footer()->size_bytes;
  if (region->footer()->magic != Footer::kMagic || region->size_bytes_ > file_bytes - Footer::kBehindBytes) {
    return refuse(kNone);
  }
  return region;
}

Region::~Region() {
  if (data_ != nullptr) ::munmap(data_, file_bytes_);
}

Status Region::map() {
  void* const mapped = ::mmap(nullptr, file_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd(), 0);
  if (mapped == MAP_FAILED) return out_of_memory(errno, file_bytes_);
  data_ = static_cast<char*>(mapped);
  return {};
}

Region::Footer* Region::footer() const { return reinterpret_cast<Footer*>(data_ + file_bytes_ - Footer::kBytes); }
std::atomic<std::uint64_t>* Region::ledger() const {
  return reinterpret_cast<std::atomic<std::uint64_t>*>(data_ + file_bytes_ - Footer::kBehindBytes);
}

std::uint64_t Region::memory() const { return footer()->memory; }
std::uint64_t Region::publication() const { return footer()->publication.load(); }
void Region::set_publication(std::uint64_t id) { footer()->publication.store(id); }

std::uint64_t Region::content_bytes() const { return std::min(footer()->content_bytes.load(), size_bytes_); }
void Region::set_content_bytes(std::uint64_t bytes) { footer()->content_bytes.store(bytes); }

Status Region::expect_parts(std::uint32_t parts) {
  if (parts > kPartsMax) {
    return fail(Errc::kTooLarge, Op::kPublish, fmt::format("{} parts; a publication has at most {}", parts, kPartsMax));
  }
  footer()->parts.store(parts);
  return {};
}

Status Region::mark_done(std::uint64_t publication, std::uint32_t part) {
  const std::uint32_t parts = footer()->parts.load();
  if (part >= parts) {
    return fail(Errc::kInvalidArgument, Op::kPublish, fmt::format("there is no part {}; {} were begun", part, parts));
  }
  // Whatever happens meanwhile: the entry says for which one.
  if (publication == 0 || this->publication() != publication) {
    return fail(Errc::kInvalidArgument, Op::kPublish,
                fmt::format("part {}: its publication was committed or aborted, so it comes too late", part));
  }
  ledger()[part].store(publication);
  return {};
}

Status Region::check_done(std::uint64_t publication) const {
  const std::uint32_t parts = footer()->parts.load();
  if (parts > kPartsMax) return fail(Errc::kCorrupt, Op::kPublish, "the region's footer was overwritten");
  std::size_t missing = 0;
  std::string names;
  for (std::uint32_t part = 0; part < parts; ++part) {
    if (ledger()[part].load() == publication) continue;
    if (missing++ < kNamedMax) names += fmt::format("{}{}", names.empty() ? "" : ", ", part);
  }
  if (missing == 0) return {};
  if (missing > kNamedMax) names += ", ...";
  return fail(
      Errc::kBusy, Op::kPublish,
      fmt::format("{} of {} parts are not done ({}); commit when wc_region_done() was called for each, or abort",
                  missing, parts, names));
}

Status Region::populate() {
  if (::fallocate(fd(), 0, 0, static_cast<off_t>(file_bytes_)) != 0 && errno != EOPNOTSUPP) {
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
