#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "patch/codec/cell.h"

namespace weightcast::bench {

static_assert(std::endian::native == std::endian::little, "snapshots are little-endian and are read in place");

[[nodiscard]] inline unsigned cell_bytes_of(std::string_view dtype) { return geometry_of(cell_kind_of(dtype)).bytes; }

template <typename Cell>
[[nodiscard]] inline Cell load_cell(const std::byte* cells, std::size_t index) {
  Cell cell;
  std::memcpy(&cell, cells + index * sizeof(Cell), sizeof(Cell));
  return cell;
}

template <typename Cell>
inline void store_cell(std::byte* cells, std::size_t index, Cell cell) {
  std::memcpy(cells + index * sizeof(Cell), &cell, sizeof(Cell));
}

/// Calls `function.operator()<Cell>()` with the unsigned integer of the cell's width.
template <typename Function>
decltype(auto) with_cell_type(unsigned cell_bytes, Function&& function) {
  return with_cell_bytes(cell_bytes, [&]<unsigned CellBytes>() -> decltype(auto) {
    return function.template operator()<typename CellInt<CellBytes>::Unsigned>();
  });
}

}  // namespace weightcast::bench
