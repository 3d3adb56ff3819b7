#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

namespace weightcast::bench {

static_assert(std::endian::native == std::endian::little, "snapshots are little-endian and are read in place");

/// How one cell's bits are split: sign on top, then exponent, then mantissa. `exponent_bits` is 0 for a dtype that is
/// not a float; such a tensor is a row of bytes, all of one class.
struct CellFormat {
  unsigned bytes = 1;
  unsigned exponent_bits = 0;
  unsigned mantissa_bits = 0;

  [[nodiscard]] constexpr bool is_float() const { return exponent_bits != 0; }

  /// The exponent field: what decides how likely a cell is to change. Below 256.
  [[nodiscard]] constexpr unsigned exponent_class(std::uint32_t bits) const {
    return (bits >> mantissa_bits) & ((1u << exponent_bits) - 1);
  }

  /// Numbers the cells so that neighbouring representable numbers get neighbouring integers. One to one: -0.0 comes
  /// just below +0.0, and NaNs lie past the infinities.
  [[nodiscard]] constexpr std::int64_t ordinal(std::uint32_t bits) const {
    if (!is_float()) return bits;
    const std::uint32_t sign = 1u << (8 * bytes - 1);
    return (bits & sign) != 0 ? -1 - static_cast<std::int64_t>(bits & (sign - 1)) : static_cast<std::int64_t>(bits);
  }
};

[[nodiscard]] constexpr CellFormat cell_format(std::string_view dtype) {
  if (dtype == "BF16") return {2, 8, 7};
  if (dtype == "F16") return {2, 5, 10};
  if (dtype == "F32") return {4, 8, 23};
  if (dtype == "F8_E4M3") return {1, 4, 3};
  if (dtype == "F8_E5M2") return {1, 5, 2};
  return {};
}

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
  switch (cell_bytes) {
    case 2: return std::forward<Function>(function).template operator()<std::uint16_t>();
    case 4: return std::forward<Function>(function).template operator()<std::uint32_t>();
    default: return std::forward<Function>(function).template operator()<std::uint8_t>();
  }
}

}  // namespace weightcast::bench
