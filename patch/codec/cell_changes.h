#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/digest/checksum.h"

namespace weightcast {

/// Cells of a range that are given new values.
struct CellChanges {
  std::vector<std::uint32_t> cells;  ///< indices within the range, ascending, each once
  std::vector<std::byte> values;     ///< one cell for each

  void clear() {
    cells.clear();
    values.clear();
  }
};

/// Writes the new values of the changes that lie within `window`, which stands at that offset of the range.
void change_cells(const CellChanges& changes, std::size_t cell_bytes, std::size_t first_cell, MutableBytes window);

}  // namespace weightcast
