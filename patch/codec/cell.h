#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/settings/words.h"

namespace weightcast {

/// How the codec reads the cells of a range: their width and, for floating point, the place of the exponent. The values
/// are part of the patch format.
enum class CellKind : std::uint8_t {
  kRaw8 = 0,
  kRaw16 = 1,
  kRaw32 = 2,
  kRaw64 = 3,
  kBf16 = 4,
  kF16 = 5,
  kF32 = 6,
  kF64 = 7,
  kF8E4M3 = 8,
  kF8E5M2 = 9,
};
inline constexpr unsigned kCellKinds = 10;
constexpr Words<kCellKinds> words_of(CellKind) {
  return {"raw8", "raw16", "raw32", "raw64", "bf16", "f16", "f32", "f64", "f8_e4m3", "f8_e5m2"};
}

/// Sign, then exponent, then mantissa, from the highest bit down; raw cells have neither exponent nor sign.
struct CellGeometry {
  unsigned bytes;
  unsigned mantissa_bits;
  unsigned exponent_bits;

  [[nodiscard]] constexpr bool is_float() const { return exponent_bits > 0; }
};

inline constexpr unsigned kCellBytesMax = 8;

[[nodiscard]] constexpr CellGeometry geometry_of(CellKind kind) {
  switch (kind) {
    case CellKind::kRaw8: return {1, 0, 0};
    case CellKind::kRaw16: return {2, 0, 0};
    case CellKind::kRaw32: return {4, 0, 0};
    case CellKind::kRaw64: return {8, 0, 0};
    case CellKind::kBf16: return {2, 7, 8};
    case CellKind::kF16: return {2, 10, 5};
    case CellKind::kF32: return {4, 23, 8};
    case CellKind::kF64: return {8, 52, 11};
    case CellKind::kF8E4M3: return {1, 3, 4};
    case CellKind::kF8E5M2: return {1, 2, 5};
  }
  return {1, 0, 0};
}

/// The kind for a safetensors dtype name. kRaw8 for unknown names and for elements that are not whole bytes.
[[nodiscard]] CellKind cell_kind_of(std::string_view dtype);

/// An unsigned integer as wide as a cell of `Bytes` bytes, and the signed one.
template <unsigned Bytes>
struct CellInt;
template <>
struct CellInt<1> {
  using Unsigned = std::uint8_t;
  using Signed = std::int8_t;
};
template <>
struct CellInt<2> {
  using Unsigned = std::uint16_t;
  using Signed = std::int16_t;
};
template <>
struct CellInt<4> {
  using Unsigned = std::uint32_t;
  using Signed = std::int32_t;
};
template <>
struct CellInt<8> {
  using Unsigned = std::uint64_t;
  using Signed = std::int64_t;
};

/// Calls `body.template operator()<CellBytes>()` for a width of 1, 2, 4 or 8 bytes that is known only at run time.
template <typename Body>
decltype(auto) with_cell_bytes(std::size_t cell_bytes, Body&& body) {
  switch (cell_bytes) {
    case 1: return body.template operator()<1>();
    case 2: return body.template operator()<2>();
    case 4: return body.template operator()<4>();
    default: return body.template operator()<8>();
  }
}

/// The arithmetic of one cell kind, resolved at compile time. `Cell` holds the bits as they stand in memory.
template <CellKind Kind>
struct CellOps {
  static constexpr CellGeometry kGeometry = geometry_of(Kind);
  using Cell = typename CellInt<kGeometry.bytes>::Unsigned;
  using SignedCell = typename CellInt<kGeometry.bytes>::Signed;
  static constexpr unsigned kBits = 8 * kGeometry.bytes;

  /// Cells stand in snapshots at any alignment.
  static Cell load(const std::byte* at) {
    Cell cell;
    std::memcpy(&cell, at, sizeof cell);
    return cell;
  }
  static void store(std::byte* at, Cell cell) { std::memcpy(at, &cell, sizeof cell); }

  /// The key of a cell's hazard class: its biased exponent, 0 for raw cells. The eleven bits of F64 are shifted and
  /// clamped, so that 2^-192 and below give 0, and 2^63 and above give 255.
  static constexpr unsigned key(Cell cell) {
    if constexpr (!kGeometry.is_float()) {
      return 0;
    } else {
      const unsigned exponent = unsigned(cell >> kGeometry.mantissa_bits) & ((1u << kGeometry.exponent_bits) - 1);
      if constexpr (kGeometry.exponent_bits <= 8) {
        return exponent;
      } else {
        constexpr unsigned kOrigin = 1023 - 192;
        return exponent < kOrigin ? 0 : exponent - kOrigin > 255 ? 255 : exponent - kOrigin;
      }
    }
  }

  // Signs are as good as random, so a branch on one would be mispredicted half of the time. The code below uses masks.

  /// A bijection to integers in which neighbouring representable numbers differ by one; +0 is 0 and -0 is -1. Raw
  /// cells are their own integers.
  static constexpr Cell to_ordered(Cell cell) {
    const Cell magnitude_mask = Cell(Cell(~Cell(0)) >> 1);
    return Cell(cell ^ (negative_mask(cell) & magnitude_mask));
  }
  static constexpr Cell from_ordered(Cell ordered) { return to_ordered(ordered); }

  /// All ones below zero, else 0.
  static constexpr Cell negative_mask(Cell cell) { return kGeometry.is_float() ? sign_mask(cell) : Cell(0); }

  /// Steps from `before` to `after`, modulo 2^bits, counted away from zero as seen from `before`: the sign says
  /// whether the magnitude grew, which the exponent predicts, rather than the sign of the change, which it does not.
  static constexpr Cell step(Cell before, Cell after) {
    return negate_where(negative_mask(before), Cell(to_ordered(after) - to_ordered(before)));
  }
  static constexpr Cell advance(Cell before, Cell steps) {
    return from_ordered(Cell(to_ordered(before) + negate_where(negative_mask(before), steps)));
  }

  /// All ones for an integer below zero, else 0.
  static constexpr Cell sign_mask(Cell integer) { return Cell(SignedCell(integer) >> (kBits - 1)); }
  /// -integer for a mask of all ones, the integer for 0.
  static constexpr Cell negate_where(Cell mask, Cell integer) { return Cell(Cell(integer ^ mask) - mask); }
};

/// Calls `body.template operator()<Kind>()` for a kind that is known only at run time.
template <typename Body>
decltype(auto) with_cell_kind(CellKind kind, Body&& body) {
  switch (kind) {
    case CellKind::kRaw16: return body.template operator()<CellKind::kRaw16>();
    case CellKind::kRaw32: return body.template operator()<CellKind::kRaw32>();
    case CellKind::kRaw64: return body.template operator()<CellKind::kRaw64>();
    case CellKind::kBf16: return body.template operator()<CellKind::kBf16>();
    case CellKind::kF16: return body.template operator()<CellKind::kF16>();
    case CellKind::kF32: return body.template operator()<CellKind::kF32>();
    case CellKind::kF64: return body.template operator()<CellKind::kF64>();
    case CellKind::kF8E4M3: return body.template operator()<CellKind::kF8E4M3>();
    case CellKind::kF8E5M2: return body.template operator()<CellKind::kF8E5M2>();
    case CellKind::kRaw8: break;
  }
  return body.template operator()<CellKind::kRaw8>();
}

}  // namespace weightcast
