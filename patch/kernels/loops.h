#pragma once

// The scalar loops. Included by one file per instruction set, for the cell kinds and the ends of ranges that have no
// vector code there; in an unnamed namespace, so that the linker cannot replace one file's copy by another's, which may
// hold instructions that the processor lacks.

#include <bit>
#include <cstring>

#include "patch/kernels/kernels.h"

namespace weightcast {
namespace {

template <CellKind Kind>
void weigh_cells(const std::byte* cells, std::size_t begin, std::size_t end, const HazardModel& model,
                 WeightedChunk& out) {
  using Ops = CellOps<Kind>;
  for (std::size_t i = begin; i < end; ++i) {
    const unsigned key = Ops::key(Ops::load(cells + i * sizeof(typename Ops::Cell)));
    const unsigned above = key < model.key_low ? 0 : key - model.key_low;
    out.weights[i] = model.weights[above < kHazardClasses ? above : kHazardClasses - 1];
  }
}

/// Clears the weights beyond `count`, then computes the sums from `block` on. The blocks before it have theirs.
inline void finish_sums(std::size_t block, std::size_t count, WeightedChunk& out) {
  std::memset(out.weights.data() + count, 0, (kChunkCells - count) * sizeof out.weights[0]);
  std::uint32_t begin = block == 0 ? 0 : out.block_begins[block];
  for (std::size_t b = block; b < kChunkBlocks; ++b) {
    out.block_begins[b] = begin;
    for (std::size_t g = b * kBlockGroups; g < (b + 1) * kBlockGroups; ++g) {
      std::uint32_t sum = 0;
      for (std::size_t i = 0; i < kGroupCells; ++i) sum += out.weights[g * kGroupCells + i];
      out.group_sums[g] = sum;
      begin += sum;
    }
  }
  out.block_begins[kChunkBlocks] = begin;
  for (std::size_t i = kChunkBlocks + 1; i < out.block_begins.size(); ++i) out.block_begins[i] = WeightedChunk::kBeyond;
}

template <unsigned CellBytes>
std::size_t diff_cells(const std::byte* before, const std::byte* after, std::size_t begin, std::size_t end,
                       std::uint16_t* out) {
  typename CellInt<CellBytes>::Unsigned a, b;
  std::size_t changed = 0;
  for (std::size_t i = begin; i < end; ++i) {
    std::memcpy(&a, before + i * CellBytes, CellBytes);
    std::memcpy(&b, after + i * CellBytes, CellBytes);
    out[changed] = std::uint16_t(i);
    changed += a != b;
  }
  return changed;
}

template <unsigned CellBytes>
void split_cells(bool rotate, const std::byte* cells, const std::byte* before, std::size_t begin, std::size_t end,
                 std::byte* const* planes) {
  using Cell = typename CellInt<CellBytes>::Unsigned;
  for (std::size_t i = begin; i < end; ++i) {
    Cell cell, old;
    std::memcpy(&cell, cells + i * CellBytes, CellBytes);
    if (before != nullptr) {
      std::memcpy(&old, before + i * CellBytes, CellBytes);
      cell = Cell(cell ^ old);
    } else if (rotate) {
      cell = std::rotl(cell, 1);
    }
    for (unsigned p = 0; p < CellBytes; ++p) planes[p][i] = std::byte(cell >> (8 * p));
  }
}

template <unsigned CellBytes>
void merge_cells(bool rotate, const std::byte* const* planes, const std::byte* before, std::size_t begin,
                 std::size_t end, std::byte* cells) {
  using Cell = typename CellInt<CellBytes>::Unsigned;
  for (std::size_t i = begin; i < end; ++i) {
    Cell cell = 0, old;
    for (unsigned p = 0; p < CellBytes; ++p) {
      cell = Cell(cell | Cell(Cell(std::to_integer<std::uint8_t>(planes[p][i])) << (8 * p)));
    }
    if (before != nullptr) {
      std::memcpy(&old, before + i * CellBytes, CellBytes);
      cell = Cell(cell ^ old);
    } else if (rotate) {
      cell = std::rotr(cell, 1);
    }
    std::memcpy(cells + i * CellBytes, &cell, CellBytes);
  }
}

// Of blocks of a fixed length the compiler makes vectors.
constexpr std::size_t kVectorBytes = 256;

inline std::uint64_t weighted_sum(const std::byte* bytes, const std::uint32_t* weights, std::size_t count) {
  constexpr std::size_t kBlock = kVectorBytes / sizeof weights[0];
  std::uint64_t sum = 0;
  const auto add = [&](std::size_t i) {
    std::uint32_t word;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    sum += std::uint64_t{word} * weights[i];
  };
  std::size_t i = 0;
  for (; count - i >= kBlock; i += kBlock) {
    for (std::size_t k = 0; k < kBlock; ++k) add(i + k);
  }
  for (; i < count; ++i) add(i);
  return sum;
}

template <unsigned CellBytes>
std::uint64_t count_equal_cells(std::uint64_t mask, std::uint64_t value, const std::byte* cells, std::size_t count) {
  using Cell = typename CellInt<CellBytes>::Unsigned;
  constexpr std::size_t kBlock = kVectorBytes / CellBytes;
  const auto equal = [&, m = Cell(mask), v = Cell(value)](std::size_t i) {
    Cell cell;
    std::memcpy(&cell, cells + i * CellBytes, CellBytes);
    return (cell & m) == v;
  };
  std::uint64_t found = 0;
  std::size_t i = 0;
  for (; count - i >= kBlock; i += kBlock) {
    // In the cell's own width, which keeps the vectors full; most blocks have none.
    Cell any = 0;
    for (std::size_t k = 0; k < kBlock; ++k) any = Cell(any | Cell(equal(i + k)));
    if (any == 0) continue;
    for (std::size_t k = 0; k < kBlock; ++k) found += equal(i + k);
  }
  for (; i < count; ++i) found += equal(i);
  return found;
}

inline std::uint64_t count_equal(unsigned cell_bytes, std::uint64_t mask, std::uint64_t value, const std::byte* cells,
                                 std::size_t count) {
  return with_cell_bytes(cell_bytes,
                         [&]<unsigned CellBytes>() { return count_equal_cells<CellBytes>(mask, value, cells, count); });
}

}  // namespace
}  // namespace weightcast
