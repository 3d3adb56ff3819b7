#pragma once

// The scalar loops. Included by one file per instruction set, for the cell kinds and the ends of ranges that have no
// vector code there; in an unnamed namespace, so that the linker cannot replace one file's copy by another's, which may
// hold instructions that the processor lacks.

#include <cstring>

#include "patch/kernels/kernels.h"

namespace weightcast {
namespace {

template <CellKind Kind>
void weigh_cells(const std::byte* cells, std::size_t begin, std::size_t end, const HazardModel& model, WeightedChunk& out) {
  using Ops = CellOps<Kind>;
  for (std::size_t i = begin; i < end; ++i) {
    typename Ops::Cell cell;
    std::memcpy(&cell, cells + i * sizeof cell, sizeof cell);
    const unsigned key = Ops::key(cell);
    const unsigned above = key < model.key_low ? 0 : key - model.key_low;
    out.weights[i] = model.weights[above < kHazardClasses ? above : kHazardClasses - 1];
  }
}

/// Sums of the groups and blocks from `block` on, after clearing the weights beyond `count`.
inline void finish_sums(std::size_t block, std::size_t count, WeightedChunk& out) {
  std::memset(out.weights.data() + count, 0, (kChunkCells - count) * sizeof out.weights[0]);
  for (std::size_t g = block * (kBlockCells / kGroupCells); g < out.group_sums.size(); ++g) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < kGroupCells; ++i) sum += out.weights[g * kGroupCells + i];
    out.group_sums[g] = sum;
  }
  for (std::size_t b = block; b < out.block_sums.size(); ++b) {
    std::uint32_t sum = 0;
    for (std::size_t g = 0; g < kBlockCells / kGroupCells; ++g) sum += out.group_sums[b * (kBlockCells / kGroupCells) + g];
    out.block_sums[b] = sum;
  }
}

template <unsigned CellBytes>
std::uint32_t diff_cells(const std::byte* before, const std::byte* after, std::size_t begin, std::size_t end) {
  typename CellInt<CellBytes>::Unsigned a, b;
  std::uint32_t mask = 0;
  for (std::size_t i = begin; i < end; ++i) {
    std::memcpy(&a, before + i * CellBytes, CellBytes);
    std::memcpy(&b, after + i * CellBytes, CellBytes);
    mask |= std::uint32_t(a != b) << (i - begin);
  }
  return mask;
}

/// Blocks from `block` on; returns whether any cell there differs.
template <unsigned CellBytes>
bool diff_blocks(const std::byte* before, const std::byte* after, std::size_t block, std::size_t count, ChangeMasks& out) {
  std::uint32_t any = 0;
  for (std::size_t b = block; b < out.size(); ++b) {
    const std::size_t begin = b * kBlockCells;
    const std::size_t end = begin + kBlockCells < count ? begin + kBlockCells : count;
    out[b] = begin < end ? diff_cells<CellBytes>(before, after, begin, end) : 0;
    any |= out[b];
  }
  return any != 0;
}

}  // namespace
}  // namespace weightcast
