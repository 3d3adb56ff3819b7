#include "patch/changes/differing_cells.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/result.h"
#include "patch/kernels/kernels.h"

namespace weightcast {
namespace {

/// Calls `body(first, chunk, count)` for each chunk in which words differ: `count` of them, at `chunk`, of the words
/// from number `first` on.
template <typename Body>
void for_differing_words(const std::byte* before, const std::byte* now, std::size_t bytes, std::size_t word_bytes,
                         const Body& body) {
  const Kernels& kernels = best_kernels();
  ChunkChanges changed;
  const std::size_t words = bytes / word_bytes;
  for (std::size_t first = 0; first < words; first += kChunkCells) {
    const std::size_t at = first * word_bytes;
    const std::size_t count =
        kernels.diff(unsigned(word_bytes), before + at, now + at, std::min(kChunkCells, words - first), changed);
    if (count > 0) body(first, changed, count);
  }
}

/// With the width known, so that a cell is copied by one instruction.
template <std::size_t CellBytes>
std::uint64_t update(MutableBytes shadow, Bytes now, const CellLists& lists) {
  constexpr std::size_t kWordBytes = std::min<std::size_t>(CellBytes, sizeof(std::uint64_t));
  constexpr std::size_t kWordsPerCell = CellBytes / kWordBytes;
  const std::size_t room = std::min(lists.numbers.size(), lists.values.size() / CellBytes);
  std::uint64_t found = 0;
  for_differing_words(shadow.data(), now.data(), now.size(), kWordBytes,
                      [&](std::size_t first, const ChunkChanges& words, std::size_t count) {
                        for (std::size_t i = 0; i < count; ++i) {
                          if (i > 0 && words[i] / kWordsPerCell == words[i - 1] / kWordsPerCell) continue;
                          const std::size_t cell = (first + words[i]) / kWordsPerCell;
                          const std::byte* const from = now.data() + cell * CellBytes;
                          if (found < room) {
                            lists.numbers[found] = static_cast<std::uint32_t>(cell);
                            std::memcpy(lists.values.data() + found * CellBytes, from, CellBytes);
                          }
                          ++found;
                          std::memcpy(shadow.data() + cell * CellBytes, from, CellBytes);
                        }
                      });
  return found;
}

}  // namespace

void append_differing_cells(Bytes before, Bytes now, std::size_t cell_bytes, std::uint32_t first,
                            std::vector<std::uint32_t>& cells) {
  WC_CHECK(std::has_single_bit(cell_bytes) && cell_bytes <= 16);
  // Wider cells are several words.
  const std::size_t word_bytes = std::min<std::size_t>(cell_bytes, sizeof(std::uint64_t));
  const std::size_t words_per_cell = cell_bytes / word_bytes;
  for_differing_words(before.data(), now.data(), now.size(), word_bytes,
                      [&](std::size_t first_word, const ChunkChanges& words, std::size_t count) {
                        const auto first_here = static_cast<std::uint32_t>(first + first_word / words_per_cell);
                        for (std::size_t i = 0; i < count; ++i) {
                          const std::size_t cell = words[i] / words_per_cell;
                          if (i > 0 && cell == words[i - 1] / words_per_cell) continue;
                          cells.push_back(first_here + static_cast<std::uint32_t>(cell));
                        }
                      });
}

std::uint64_t update_shadow(MutableBytes shadow, Bytes now, std::size_t cell_bytes, const CellLists& lists) {
  WC_CHECK(shadow.size() == now.size() && now.size() % cell_bytes == 0);
  switch (cell_bytes) {
    case 1: return update<1>(shadow, now, lists);
    case 2: return update<2>(shadow, now, lists);
    case 4: return update<4>(shadow, now, lists);
    case 8: return update<8>(shadow, now, lists);
    default: WC_CHECK(cell_bytes == 16); return update<16>(shadow, now, lists);
  }
}

}  // namespace weightcast
