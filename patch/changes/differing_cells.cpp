#include "patch/changes/differing_cells.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/result.h"

namespace weightcast {
namespace {

// What has not changed is found by so many bytes at a time: a multiple of each width.
constexpr std::size_t kBlockBytes = 512;

template <std::size_t width>
void append(Bytes before, Bytes now, std::uint32_t first, std::vector<std::uint32_t>& cells) {
  std::array<std::uint32_t, kBlockBytes / width> found;
  for (std::size_t block = 0; block < now.size(); block += kBlockBytes) {
    const std::size_t bytes = std::min(kBlockBytes, now.size() - block);
    const std::byte* const a = before.data() + block;
    const std::byte* const b = now.data() + block;
    if (std::memcmp(a, b, bytes) == 0) continue;
    // Each cell is written down, and kept if it differs: a branch for each would be guessed wrong too often.
    std::size_t count = 0;
    for (std::size_t at = 0; at < bytes; at += width) {
      found[count] = first + static_cast<std::uint32_t>((block + at) / width);
      count += std::memcmp(a + at, b + at, width) != 0 ? 1 : 0;
    }
    cells.insert(cells.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count));
  }
}

}  // namespace

void append_differing_cells(Bytes before, Bytes now, std::size_t cell_bytes, std::uint32_t first,
                            std::vector<std::uint32_t>& cells) {
  switch (cell_bytes) {
    case 1: return append<1>(before, now, first, cells);
    case 2: return append<2>(before, now, first, cells);
    case 4: return append<4>(before, now, first, cells);
    case 8: return append<8>(before, now, first, cells);
    case 16: return append<16>(before, now, first, cells);
    default: WC_CHECK(false);
  }
}

}  // namespace weightcast
