#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "patch/codec/cell.h"
#include "patch/codec/hazard.h"

namespace weightcast {

/// Cells are looked at a chunk at a time, small enough that its old cells, new cells and weights and the next chunk's
/// cells fit in the first-level cache; a chunk has blocks, a block has groups.
inline constexpr std::size_t kChunkCells = 2048;
inline constexpr std::size_t kBlockCells = 32;
inline constexpr std::size_t kGroupCells = 8;
inline constexpr std::size_t kBlockGroups = kBlockCells / kGroupCells;
inline constexpr std::size_t kChunkBlocks = kChunkCells / kBlockCells;
/// How many blocks the decoder's search looks at together.
inline constexpr std::size_t kSearchBlocks = 16;

/// The cells of one chunk on the hazard line. Cells beyond the last have weight 0.
struct WeightedChunk {
  alignas(64) std::array<std::uint16_t, kChunkCells> weights;
  alignas(64) std::array<std::uint32_t, kChunkBlocks * kBlockGroups> group_sums;
  /// Where each block begins, then where the last one ends, then kBeyond.
  alignas(64) std::array<std::uint32_t, kChunkBlocks + 1 + kSearchBlocks> block_begins;

  /// More than any chunk's length, and positive as a signed number.
  static constexpr std::uint32_t kBeyond = 0x7fffffff;
  [[nodiscard]] std::uint32_t total() const { return block_begins[kChunkBlocks]; }
};

/// Indices of changed cells within a chunk, in order. The spare places are scratch for the kernels.
using ChangedCells = std::array<std::uint16_t, kChunkCells + kBlockCells>;

/// The two loops over every cell, for one instruction set. All sets give equal results; tests hold them to it.
struct Kernels {
  std::string_view name;
  /// `count` <= kChunkCells cells of `kind` at `cells`, of any alignment.
  void (*weigh)(CellKind kind, const std::byte* cells, std::size_t count, const HazardModel& model, WeightedChunk& out);
  /// `count` <= kChunkCells cells of `cell_bytes` at each of `before` and `after`. Returns how many differ.
  std::size_t (*diff)(unsigned cell_bytes, const std::byte* before, const std::byte* after, std::size_t count,
                      ChangedCells& out);
};

[[nodiscard]] const Kernels& scalar_kernels();
/// Null where they were not compiled or the processor lacks the instructions.
[[nodiscard]] const Kernels* avx2_kernels();
[[nodiscard]] const Kernels* avx512_kernels();

/// The fastest that this processor runs, unless WEIGHTCAST_KERNELS (scalar, avx2, avx512) names another that it runs.
[[nodiscard]] const Kernels& best_kernels();
/// Every set that this processor runs, scalar first.
[[nodiscard]] std::span<const Kernels* const> available_kernels();

}  // namespace weightcast
