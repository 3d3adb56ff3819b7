#include "patch/changes/differing_cells.h"

#include <algorithm>
#include <bit>

#include "base/result.h"
#include "patch/kernels/kernels.h"

namespace weightcast {

void append_differing_cells(Bytes before, Bytes now, std::size_t cell_bytes, std::uint32_t first,
                            std::vector<std::uint32_t>& cells) {
  const Kernels& kernels = best_kernels();
  WC_CHECK(std::has_single_bit(cell_bytes) && cell_bytes <= 16);
  // Wider cells are several words.
  const std::size_t word_bytes = std::min<std::size_t>(cell_bytes, sizeof(std::uint64_t));
  const std::size_t words_per_cell = cell_bytes / word_bytes;
  ChangedCells changed;
  for (std::size_t at = 0; at < now.size(); at += kChunkCells * word_bytes) {
    const std::size_t words = std::min(kChunkCells, (now.size() - at) / word_bytes);
    const std::size_t count = kernels.diff(unsigned(word_bytes), before.data() + at, now.data() + at, words, changed);
    const auto first_here = static_cast<std::uint32_t>(first + at / cell_bytes);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t cell = changed[i] / words_per_cell;
      if (i > 0 && cell == changed[i - 1] / words_per_cell) continue;
      cells.push_back(first_here + static_cast<std::uint32_t>(cell));
    }
  }
}

}  // namespace weightcast
