#include "bench/fleet/warm_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/units.h"
#include "bench/proc_bytes.h"

namespace weightcast::bench {
namespace {

constexpr std::uint64_t kPageBytes = 4 * kKiB;
constexpr std::uint64_t kStrideBytes = 128 * kKiB;

}  // namespace

Result<WarmMemory> WarmMemory::make(std::uint64_t bytes) {
  bytes = (bytes + kStrideBytes - 1) / kStrideBytes * kStrideBytes;
  const std::uint64_t most = proc_bytes("/proc/meminfo", "MemAvailable:") / 4 * 3;
  if (bytes > most) {
    return fail(Errc::kNoSpace, Op::kConfigure,
                fmt::format("{} of warm memory: {} are to be had", format_bytes(bytes), format_bytes(most)));
  }
  if (bytes == 0) return WarmMemory(nullptr, 0);
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return fail_errno(errno, Op::kConfigure, "warm memory");
  WarmMemory memory(base, bytes);
  ::madvise(base, bytes, MADV_NOHUGEPAGE);  // a huge page of which a part is freed stays whole
  auto* const bytes_of = static_cast<volatile char*>(base);
  for (std::uint64_t at = 0; at < bytes; at += kPageBytes) bytes_of[at] = 1;
  for (std::uint64_t at = 0; at < bytes; at += kStrideBytes) {
    ::madvise(static_cast<char*>(base) + at + kPageBytes, kStrideBytes - kPageBytes, MADV_DONTNEED);
  }
  return memory;
}

WarmMemory::WarmMemory(WarmMemory&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

WarmMemory::~WarmMemory() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

}  // namespace weightcast::bench
