#include "patch/codec/cell.h"

#include <array>
#include <utility>

namespace weightcast {
namespace {

constexpr std::array<std::pair<std::string_view, CellKind>, 17> kByName{{
    {"BF16", CellKind::kBf16},
    {"F16", CellKind::kF16},
    {"F32", CellKind::kF32},
    {"F64", CellKind::kF64},
    {"F8_E4M3", CellKind::kF8E4M3},
    {"F8_E5M2", CellKind::kF8E5M2},
    {"F8_E4M3FN", CellKind::kF8E4M3},
    {"F8_E4M3FNUZ", CellKind::kF8E4M3},
    {"F8_E5M2FNUZ", CellKind::kF8E5M2},
    {"I16", CellKind::kRaw16},
    {"U16", CellKind::kRaw16},
    {"I32", CellKind::kRaw32},
    {"U32", CellKind::kRaw32},
    {"I64", CellKind::kRaw64},
    {"U64", CellKind::kRaw64},
    {"C64", CellKind::kF32},
    {"U8", CellKind::kRaw8},
}};

}  // namespace

CellKind cell_kind_of(std::string_view dtype) {
  for (const auto& [name, kind] : kByName) {
    if (name == dtype) return kind;
  }
  return CellKind::kRaw8;
}

}  // namespace weightcast
