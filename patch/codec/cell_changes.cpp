#include "patch/codec/cell_changes.h"

#include <algorithm>
#include <cstring>

namespace weightcast {

void change_cells(const CellChanges& changes, std::size_t cell_bytes, std::size_t first_cell, MutableBytes window) {
  const std::size_t end = first_cell + window.size() / cell_bytes;
  const auto first = std::ranges::lower_bound(changes.cells, first_cell);
  for (auto at = first; at != changes.cells.end() && *at < end; ++at) {
    const auto index = static_cast<std::size_t>(at - changes.cells.begin());
    std::memcpy(window.data() + (*at - first_cell) * cell_bytes, changes.values.data() + index * cell_bytes,
                cell_bytes);
  }
}

}  // namespace weightcast
