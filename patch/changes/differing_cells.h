#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/digest/checksum.h"

namespace weightcast {

/// Appends the numbers of the cells in which `now` differs from `before`, ascending, the first cell having number
/// `first`. Both have the same whole number of cells, of `cell_bytes` each: 1, 2, 4, 8 or 16. No number exceeds 32
/// bits.
void append_differing_cells(Bytes before, Bytes now, std::size_t cell_bytes, std::uint32_t first,
                            std::vector<std::uint32_t>& cells);

/// Cells that differ, in memory of the caller's, which has room for as many as both arrays are long.
struct CellLists {
  std::span<std::uint32_t> numbers;
  MutableBytes values;  ///< new ones
};

/// The same cells of `shadow` and `now`, from number 0, and in the same pass makes the shadow equal. Returns how many
/// cells differ. The lists have the first of them, as many as there is room for.
std::uint64_t update_shadow(MutableBytes shadow, Bytes now, std::size_t cell_bytes, const CellLists& lists);

}  // namespace weightcast
