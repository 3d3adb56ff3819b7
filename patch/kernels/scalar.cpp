#include <algorithm>

#include "patch/kernels/loops.h"

namespace weightcast {
namespace {

void weigh(CellKind kind, const std::byte* cells, std::size_t count, const HazardModel& model, WeightedChunk& out) {
  with_cell_kind(kind, [&]<CellKind Kind>() { weigh_cells<Kind>(cells, 0, count, model, out); });
  finish_sums(0, count, out);
}

std::size_t diff(unsigned cell_bytes, const std::byte* before, const std::byte* after, std::size_t count,
                 ChunkChanges& out) {
  return with_cell_bytes(
      cell_bytes, [&]<unsigned CellBytes>() { return diff_cells<CellBytes>(before, after, 0, count, out.data()); });
}

void split(unsigned cell_bytes, bool rotate, const std::byte* cells, const std::byte* before, std::size_t count,
           std::byte* const* planes) {
  with_cell_bytes(cell_bytes,
                  [&]<unsigned CellBytes>() { split_cells<CellBytes>(rotate, cells, before, 0, count, planes); });
}

void merge(unsigned cell_bytes, bool rotate, const std::byte* const* planes, const std::byte* before, std::size_t count,
           std::byte* cells) {
  with_cell_bytes(cell_bytes,
                  [&]<unsigned CellBytes>() { merge_cells<CellBytes>(rotate, planes, before, 0, count, cells); });
}

ByteRange range(const std::byte* bytes, std::size_t count) {
  // A block of fixed length is what the compiler makes vectors of.
  constexpr std::size_t kBlock = 32;
  std::array<std::uint8_t, kBlock> least, greatest, block;
  least.fill(255);
  greatest.fill(0);
  for (std::size_t i = 0; i < count; i += kBlock) {
    // The last one may overlap the one before it; of a short plane it repeats the first byte.
    const std::size_t size = std::min(kBlock, count);
    if (size < kBlock) block.fill(std::to_integer<std::uint8_t>(bytes[0]));
    std::memcpy(block.data(), bytes + std::min(i, count - size), size);
    for (std::size_t lane = 0; lane < kBlock; ++lane) {
      least[lane] = std::min(least[lane], block[lane]);
      greatest[lane] = std::max(greatest[lane], block[lane]);
    }
  }
  return {*std::min_element(least.begin(), least.end()), *std::max_element(greatest.begin(), greatest.end())};
}

std::uint16_t* put_bytes(const ByteSymbols& symbols, ByteStates& states, const std::byte* bytes, std::size_t count,
                         std::uint16_t* words) {
  for (std::size_t i = count; i-- > 0;) {
    std::uint32_t& state = states[i % kByteLanes];
    const std::uint32_t symbol = symbols[std::to_integer<std::size_t>(bytes[i])];
    const std::uint32_t frequency = symbol & 0xffff, start = symbol >> 16;
    if (state >= frequency << (31 - kByteBits)) {
      *--words = std::uint16_t(state);
      state >>= 16;
    }
    state = (state / frequency << kByteBits) + state % frequency + start;
  }
  return words;
}

std::size_t take_bytes(const ByteSlots& slots, ByteStates& states, const std::byte*& words, const std::byte* words_end,
                       std::byte* bytes, std::size_t count) {
  const std::byte* next = words;
  std::size_t i = 0;
  for (; i + kByteLanes <= count && words_end - next >= std::ptrdiff_t(kByteGroupWordBytes); i += kByteLanes) {
    for (std::size_t lane = 0; lane < kByteLanes; ++lane) {
      std::uint32_t& state = states[lane];
      const std::uint32_t slot = slots[state % kByteTotal];
      bytes[i + lane] = std::byte(slot >> 24);
      state = (slot & 0xfff) * (state >> kByteBits) + (slot >> 12 & 0xfff);
      // Without a branch, which would be guessed wrong: the word is read in any case, and taken where it is wanted.
      std::uint16_t word;
      std::memcpy(&word, next, sizeof word);
      const std::uint32_t low = state < kByteStateLow;
      state = (state << (16 * low)) | (word & (0 - low));
      next += 2 * low;
    }
  }
  words = next;
  return i;
}

std::size_t take_cells(const ByteSlots& slots, ByteStates& states, const std::byte*& words, const std::byte* words_end,
                       const std::byte* low, bool rotate, std::byte* cells, std::size_t count) {
  std::array<std::byte, 16 * kByteLanes> high;
  std::size_t done = 0;
  for (std::size_t taken = high.size(); taken == high.size(); done += taken) {
    taken = take_bytes(slots, states, words, words_end, high.data(), std::min(high.size(), count - done));
    const std::byte* const planes[] = {low + done, high.data()};
    merge_cells<2>(rotate, planes, nullptr, 0, taken, cells + 2 * done);
  }
  return done;
}

}  // namespace

const Kernels& scalar_kernels() {
  static constexpr Kernels kernels{"scalar",    weigh, diff,      split,      merge,     weighted_sum,
                                   count_equal, range, put_bytes, take_bytes, take_cells};
  return kernels;
}

}  // namespace weightcast
