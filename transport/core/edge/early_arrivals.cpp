#include "transport/core/edge/early_arrivals.h"

#include <utility>

namespace weightcast {
namespace {

// A buffer takes whole pages.
constexpr std::size_t kPageBytes = 4 * kKiB;
// Of each beside its bytes: the entry, twice as a vector grows, and what the allocator and the buffer's owner count.
constexpr std::size_t kOverheadBytes = 512;

std::size_t cost_of(const ChunkArrival& chunk) {
  return (chunk.size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes + kOverheadBytes;
}
std::size_t cost_of(Bytes digests) { return digests.size() + kOverheadBytes; }

}  // namespace

bool EarlyArrivals::add(ConnId sender, const ChunkArrival& chunk) {
  const std::size_t cost = cost_of(chunk);
  if (cost > kBytesMax - bytes()) return false;
  chunks_bytes_ += cost;
  chunks_.push_back({sender, chunk});
  return true;
}

bool EarlyArrivals::add(ConnId sender, std::uint32_t part, Bytes digests) {
  const std::size_t cost = cost_of(digests);
  if (cost > kBytesMax - bytes()) return false;
  parts_bytes_ += cost;
  parts_.push_back({sender, part, {digests.begin(), digests.end()}});
  return true;
}

void EarlyArrivals::erase(ConnId sender) {
  std::erase_if(chunks_, [&](const Chunk& early) {
    if (early.sender != sender) return false;
    chunks_bytes_ -= cost_of(early.arrival);
    return true;
  });
  std::erase_if(parts_, [&](const Part& early) {
    if (early.sender != sender) return false;
    parts_bytes_ -= cost_of(early.digests);
    return true;
  });
}

std::vector<EarlyArrivals::Chunk> EarlyArrivals::take_chunks() {
  chunks_bytes_ = 0;
  return std::exchange(chunks_, {});
}

std::vector<EarlyArrivals::Part> EarlyArrivals::take_parts() {
  parts_bytes_ = 0;
  return std::exchange(parts_, {});
}

}  // namespace weightcast
