#include "patch/kernels/loops.h"

namespace weightcast {
namespace {

void weigh(CellKind kind, const std::byte* cells, std::size_t count, const HazardModel& model, WeightedChunk& out) {
  with_cell_kind(kind, [&]<CellKind Kind>() { weigh_cells<Kind>(cells, 0, count, model, out); });
  finish_sums(0, count, out);
}

bool diff(unsigned cell_bytes, const std::byte* before, const std::byte* after, std::size_t count, ChangeMasks& out) {
  switch (cell_bytes) {
    case 1: return diff_blocks<1>(before, after, 0, count, out);
    case 2: return diff_blocks<2>(before, after, 0, count, out);
    case 4: return diff_blocks<4>(before, after, 0, count, out);
    default: return diff_blocks<8>(before, after, 0, count, out);
  }
}

}  // namespace

const Kernels& scalar_kernels() {
  static constexpr Kernels kernels{"scalar", weigh, diff};
  return kernels;
}

}  // namespace weightcast
