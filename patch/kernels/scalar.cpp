#include "patch/kernels/loops.h"

namespace weightcast {
namespace {

void weigh(CellKind kind, const std::byte* cells, std::size_t count, const HazardModel& model, WeightedChunk& out) {
  with_cell_kind(kind, [&]<CellKind Kind>() { weigh_cells<Kind>(cells, 0, count, model, out); });
  finish_sums(0, count, out);
}

std::size_t diff(unsigned cell_bytes, const std::byte* before, const std::byte* after, std::size_t count,
                 ChangedCells& out) {
  switch (cell_bytes) {
    case 1: return diff_cells<1>(before, after, 0, count, out.data());
    case 2: return diff_cells<2>(before, after, 0, count, out.data());
    case 4: return diff_cells<4>(before, after, 0, count, out.data());
    default: return diff_cells<8>(before, after, 0, count, out.data());
  }
}

}  // namespace

const Kernels& scalar_kernels() {
  static constexpr Kernels kernels{"scalar", weigh, diff};
  return kernels;
}

}  // namespace weightcast
