#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/checksum.h"

namespace weightcast {

/// Appends the numbers of the cells in which `now` differs from `before`, ascending, the first cell having number
/// `first`. Both have the same whole number of cells, of `cell_bytes` each: 1, 2, 4, 8 or 16. No number exceeds 32
/// bits.
void append_differing_cells(Bytes before, Bytes now, std::size_t cell_bytes, std::uint32_t first,
                            std::vector<std::uint32_t>& cells);

}  // namespace weightcast
