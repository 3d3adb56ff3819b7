#include <immintrin.h>

#include <bit>

#include "patch/kernels/loops.h"

namespace weightcast {
namespace {

// AVX-512 F, BW and VBMI2, and only where they are faster: comparisons give masks, and a mask gives the indices of
// its bits without a branch. Weighing is AVX2's: at twice the width it has two ports where AVX2 has three, and was
// measured to be no faster.

__m512i load(const std::byte* at) { return _mm512_loadu_si512(at); }

__m512i load_half(const std::byte* at) {
  return _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

template <unsigned CellBytes>
std::uint32_t diff_block(const std::byte* before, const std::byte* after) {
  if constexpr (CellBytes == 1) return std::uint32_t(_mm512_cmpneq_epi8_mask(load_half(before), load_half(after)));
  if constexpr (CellBytes == 2) return _mm512_cmpneq_epi16_mask(load(before), load(after));
  std::uint32_t mask = 0;
  for (std::size_t i = 0; i < CellBytes / 2; ++i) {
    const __m512i a = load(before + 64 * i), b = load(after + 64 * i);
    mask |= CellBytes == 4 ? std::uint32_t(_mm512_cmpneq_epi32_mask(a, b)) << (16 * i)
                           : std::uint32_t(_mm512_cmpneq_epi64_mask(a, b)) << (8 * i);
  }
  return mask;
}

// Whether a block has changes is as good as random at 1 % density, and so is how many: whole vectors of indices are
// written, of which the next block's begin where this one's changes end.
template <unsigned CellBytes>
std::size_t diff_chunk(const std::byte* before, const std::byte* after, std::size_t count, ChunkChanges& out) {
  alignas(64) static constexpr auto kIndices = [] {
    std::array<std::uint16_t, kBlockCells> indices{};
    for (unsigned i = 0; i < kBlockCells; ++i) indices[i] = std::uint16_t(i);
    return indices;
  }();
  const __m512i step = _mm512_set1_epi16(kBlockCells);
  __m512i indices = _mm512_load_si512(kIndices.data());
  const std::size_t blocks = count / kBlockCells;
  std::size_t changed = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t offset = b * kBlockCells * CellBytes;
    const std::uint32_t mask = diff_block<CellBytes>(before + offset, after + offset);
    _mm512_storeu_si512(out.data() + changed, _mm512_maskz_compress_epi16(mask, indices));
    changed += std::size_t(std::popcount(mask));
    indices = _mm512_add_epi16(indices, step);
  }
  return changed + diff_cells<CellBytes>(before, after, blocks * kBlockCells, count, out.data() + changed);
}

std::size_t diff(unsigned cell_bytes, const std::byte* before, const std::byte* after, std::size_t count,
                 ChunkChanges& out) {
  return with_cell_bytes(cell_bytes,
                         [&]<unsigned CellBytes>() { return diff_chunk<CellBytes>(before, after, count, out); });
}

// `put` is given sixteen bytes and which they are.
template <typename Put>
[[gnu::always_inline]] inline std::size_t take_groups(const ByteSlots& slots, ByteStates& states,
                                                      const std::byte*& words, const std::byte* words_end,
                                                      std::size_t count, const Put& put) {
  __m512i lanes[2] = {_mm512_loadu_si512(states.data()), _mm512_loadu_si512(states.data() + 16)};
  const __m512i low12 = _mm512_set1_epi32(kByteTotal - 1), lowest = _mm512_set1_epi32(kByteStateLow);
  const std::byte* next = words;
  std::size_t i = 0;
  for (; i + kByteLanes <= count && words_end - next >= std::ptrdiff_t(kByteGroupWordBytes); i += kByteLanes) {
#pragma GCC unroll 2
    for (unsigned v = 0; v < 2; ++v) {
      const __m512i slot = _mm512_i32gather_epi32(_mm512_and_si512(lanes[v], low12), slots.data(), sizeof slots[0]);
      put(_mm512_cvtepi32_epi8(_mm512_srli_epi32(slot, 24)), i + 16 * v);
      const __m512i product = _mm512_mullo_epi32(_mm512_and_si512(slot, low12), _mm512_srli_epi32(lanes[v], kByteBits));
      const __m512i state = _mm512_add_epi32(product, _mm512_and_si512(_mm512_srli_epi32(slot, 12), low12));
      const __mmask16 wants = _mm512_cmplt_epi32_mask(state, lowest);
      const __m512i sixteen = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(next)));
      const __m512i word = _mm512_maskz_expand_epi32(wants, sixteen);
      lanes[v] = _mm512_or_si512(_mm512_mask_slli_epi32(state, wants, state, 16), word);
      next += 2 * std::popcount(unsigned{wants});
    }
  }
  _mm512_storeu_si512(states.data(), lanes[0]);
  _mm512_storeu_si512(states.data() + 16, lanes[1]);
  words = next;
  return i;
}

std::size_t take_bytes(const ByteSlots& slots, ByteStates& states, const std::byte*& words, const std::byte* words_end,
                       std::byte* bytes, std::size_t count) {
  return take_groups(slots, states, words, words_end, count, [bytes](__m128i taken, std::size_t at) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + at), taken);
  });
}

std::size_t take_cells(const ByteSlots& slots, ByteStates& states, const std::byte*& words, const std::byte* words_end,
                       const std::byte* low, bool rotate, std::byte* cells, std::size_t count) {
  return take_groups(slots, states, words, words_end, count, [=](__m128i taken, std::size_t at) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low + at));
    const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(taken), 8);
    __m256i merged = _mm256_or_si256(_mm256_cvtepu8_epi16(first), high);
    if (rotate) merged = _mm256_or_si256(_mm256_srli_epi16(merged, 1), _mm256_slli_epi16(merged, 15));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(cells + 2 * at), merged);
  });
}

}  // namespace

const Kernels& avx512_kernels() {
  static const Kernels kernels = [] {
    Kernels mixed = avx2_kernels();
    mixed.name = "avx512";
    mixed.diff = diff;
    mixed.take_bytes = take_bytes;
    mixed.take_cells = take_cells;
    return mixed;
  }();
  return kernels;
}

}  // namespace weightcast
