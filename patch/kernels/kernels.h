#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "patch/codec/cell.h"
#include "patch/codec/entropy/hazard.h"
#include "patch/kernels/byte_code.h"

namespace weightcast {

/// Kernels work on a chunk of cells at a time. A chunk's old cells, new cells and weights, with the next chunk's cells,
/// fit in the first-level cache. A chunk has blocks, and a block has groups.
inline constexpr std::size_t kChunkCells = 2048;
inline constexpr std::size_t kBlockCells = 32;
inline constexpr std::size_t kGroupCells = 8;
inline constexpr std::size_t kBlockGroups = kBlockCells / kGroupCells;
inline constexpr std::size_t kChunkBlocks = kChunkCells / kBlockCells;
/// How many blocks one step of the decoder's search compares.
inline constexpr std::size_t kSearchBlocks = 16;

/// The cells of one chunk on the hazard line. Cells beyond the last have weight 0.
struct WeightedChunk {
  alignas(64) std::array<std::uint16_t, kChunkCells> weights;
  alignas(64) std::array<std::uint32_t, kChunkBlocks * kBlockGroups> group_sums;
  /// The beginning of each block, then the end of the last one, then kBeyond.
  alignas(64) std::array<std::uint32_t, kChunkBlocks + 1 + kSearchBlocks> block_begins;

  /// More than any chunk's length, and positive as a signed number.
  static constexpr std::uint32_t kBeyond = 0x7fffffff;
  [[nodiscard]] std::uint32_t total() const { return block_begins[kChunkBlocks]; }
};

/// Indices of changed cells within a chunk, in order. The kernels use the spare places as scratch.
using ChunkChanges = std::array<std::uint16_t, kChunkCells + kBlockCells>;

struct ByteRange {
  std::uint8_t least, greatest;
};

/// The loops over every cell, for one instruction set. All sets give equal results; tests hold them to it.
struct Kernels {
  std::string_view name;
  /// `count` <= kChunkCells cells of `kind` at `cells`, of any alignment.
  void (*weigh)(CellKind kind, const std::byte* cells, std::size_t count, const HazardModel& model, WeightedChunk& out);
  /// `count` <= kChunkCells cells of `cell_bytes` at each of `before` and `after`. Returns how many differ.
  std::size_t (*diff)(unsigned cell_bytes, const std::byte* before, const std::byte* after, std::size_t count,
                      ChunkChanges& out);
  /// Writes byte p of cell i to planes[p][i], for `count` cells of `cell_bytes`. With `before` it splits the exclusive
  /// or of both; without, the cell itself, rotated left by one bit if `rotate` is set.
  void (*split)(unsigned cell_bytes, bool rotate, const std::byte* cells, const std::byte* before, std::size_t count,
                std::byte* const* planes);
  /// The inverse of split(). `before` may be `cells`. It is null if it was null in split().
  void (*merge)(unsigned cell_bytes, bool rotate, const std::byte* const* planes, const std::byte* before,
                std::size_t count, std::byte* cells);
  /// The sum of `count` little-endian words of four bytes at `bytes`, each times its weight, modulo 2^64.
  std::uint64_t (*weighted_sum)(const std::byte* bytes, const std::uint32_t* weights, std::size_t count);
  /// How many of `count` cells of `cell_bytes` equal `value` under `mask`, both of which fit into a cell.
  std::uint64_t (*count_equal)(unsigned cell_bytes, std::uint64_t mask, std::uint64_t value, const std::byte* cells,
                               std::size_t count);
  /// The least and the greatest of `count` bytes, of which there is one at least.
  ByteRange (*range)(const std::byte* bytes, std::size_t count);
  /// Puts `count` bytes, a multiple of kByteLanes, the last one first. Words go down from `words`, below which there is
  /// room for `count` and kByteWordsSlack more. Returns the lowest word.
  std::uint16_t* (*put_bytes)(const ByteSymbols& symbols, ByteStates& states, const std::byte* bytes, std::size_t count,
                              std::uint16_t* words);
  /// Decodes at most `count` bytes in groups of kByteLanes, while a group cannot read beyond `words_end`. Returns how
  /// many, and advances `words`. States are below kByteStateEnd, and stay so.
  std::size_t (*take_bytes)(const ByteSlots& slots, ByteStates& states, const std::byte*& words,
                            const std::byte* words_end, std::byte* bytes, std::size_t count);
  /// take_bytes() and merge() at once, of cells of two bytes without `before`: takes the high byte of each cell, and
  /// the low ones stand at `low`. Returns how many cells, a multiple of kByteLanes.
  std::size_t (*take_cells)(const ByteSlots& slots, ByteStates& states, const std::byte*& words,
                            const std::byte* words_end, const std::byte* low, bool rotate, std::byte* cells,
                            std::size_t count);
};

[[nodiscard]] const Kernels& scalar_kernels();
/// Compiled for x86 alone, and only to be called where instruction_set() is kAvx2 at least; kAvx512Vbmi2.
[[nodiscard]] const Kernels& avx2_kernels();
[[nodiscard]] const Kernels& avx512_kernels();

/// Those for instruction_set() and the sets before it, scalar first.
[[nodiscard]] std::span<const Kernels* const> available_kernels();
/// The last of them, which is the fastest.
[[nodiscard]] const Kernels& best_kernels();

}  // namespace weightcast
