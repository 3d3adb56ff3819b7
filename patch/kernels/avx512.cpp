#include <immintrin.h>

#include <bit>

#include "patch/kernels/loops.h"

namespace weightcast {
namespace {

// AVX-512 F and BW, and only what they make simpler: comparisons give masks, and narrowing keeps the order of cells.
// Kinds without code here take the scalar loops.

__m512i load(const std::byte* at) { return _mm512_loadu_si512(at); }

template <int ExponentBits>
__m256i keys16(__m512i cells) {
  return _mm512_cvtepi16_epi8(_mm512_srli_epi16(_mm512_slli_epi16(cells, 1), 16 - ExponentBits));
}

__m256i keys32(__m512i first, __m512i second) {
  const auto narrow = [](__m512i cells) {
    return _mm512_cvtepi32_epi8(_mm512_srli_epi32(_mm512_slli_epi32(cells, 1), 24));
  };
  return _mm256_set_m128i(narrow(second), narrow(first));
}

// Returns where the next block begins.
std::uint32_t weigh_block(__m256i keys, __m512i table, const HazardModel& model, std::size_t block, std::uint32_t begin,
                          WeightedChunk& out) {
  const __m256i classes = _mm256_min_epu8(_mm256_subs_epu8(keys, _mm256_set1_epi8(char(model.key_low))),
                                          _mm256_set1_epi8(char(kHazardClasses - 1)));
  const __m512i weights = _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(classes), table);
  _mm512_store_si512(out.weights.data() + block * kBlockCells, weights);
  const __m512i zero = _mm512_setzero_si512();
  const __m512i low = _mm512_sad_epu8(_mm512_and_si512(weights, _mm512_set1_epi16(0xff)), zero);
  const __m512i high = _mm512_sad_epu8(_mm512_srli_epi16(weights, 8), zero);
  // Eight sums of four cells; neighbours make the groups of eight.
  const __m512i sums = _mm512_add_epi64(low, _mm512_slli_epi64(high, 8));
  const __m512i pairs = _mm512_add_epi64(sums, _mm512_shuffle_epi32(sums, _MM_PERM_BADC));
  alignas(64) std::array<std::uint64_t, 8> lanes;
  _mm512_store_si512(lanes.data(), pairs);
  out.block_begins[block] = begin;
  for (std::size_t g = 0; g < kBlockGroups; ++g) {
    const auto sum = std::uint32_t(lanes[2 * g]);
    out.group_sums[block * kBlockGroups + g] = sum;
    begin += sum;
  }
  return begin;
}

void weigh(CellKind kind, const std::byte* cells, std::size_t count, const HazardModel& model, WeightedChunk& out) {
  alignas(64) std::array<std::uint16_t, 32> repeated;
  for (unsigned i = 0; i < repeated.size(); ++i) repeated[i] = model.weights[i % kHazardClasses];
  const __m512i table = _mm512_load_si512(repeated.data());
  const bool known = kind == CellKind::kBf16 || kind == CellKind::kF16 || kind == CellKind::kF32;
  const std::size_t blocks = known ? count / kBlockCells : 0;
  std::uint32_t end = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::byte* at = cells + b * kBlockCells * (kind == CellKind::kF32 ? 4 : 2);
    const __m256i keys = kind == CellKind::kBf16  ? keys16<8>(load(at))
                         : kind == CellKind::kF16 ? keys16<5>(load(at))
                                                  : keys32(load(at), load(at + 64));
    end = weigh_block(keys, table, model, b, end, out);
  }
  out.block_begins[blocks] = end;
  with_cell_kind(kind, [&]<CellKind Kind>() { weigh_cells<Kind>(cells, blocks * kBlockCells, count, model, out); });
  finish_sums(blocks, count, out);
}

template <unsigned CellBytes>
std::uint32_t diff_block(const std::byte* before, const std::byte* after) {
  if constexpr (CellBytes == 2) {
    return _mm512_cmpneq_epi16_mask(load(before), load(after));
  } else {
    return std::uint32_t(_mm512_cmpneq_epi32_mask(load(before), load(after))) |
           std::uint32_t(_mm512_cmpneq_epi32_mask(load(before + 64), load(after + 64))) << 16;
  }
}

template <unsigned CellBytes>
std::size_t diff_chunk(const std::byte* before, const std::byte* after, std::size_t count, ChangedCells& out) {
  const std::size_t blocks = count / kBlockCells;
  std::size_t changed = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t offset = b * kBlockCells * CellBytes;
    for (std::uint32_t mask = diff_block<CellBytes>(before + offset, after + offset); mask != 0; mask &= mask - 1) {
      out[changed++] = std::uint16_t(b * kBlockCells + std::size_t(std::countr_zero(mask)));
    }
  }
  return changed + diff_cells<CellBytes>(before, after, blocks * kBlockCells, count, out.data() + changed);
}

std::size_t diff(unsigned cell_bytes, const std::byte* before, const std::byte* after, std::size_t count,
                 ChangedCells& out) {
  switch (cell_bytes) {
    case 1: return diff_cells<1>(before, after, 0, count, out.data());
    case 2: return diff_chunk<2>(before, after, count, out);
    case 4: return diff_chunk<4>(before, after, count, out);
    default: return diff_cells<8>(before, after, 0, count, out.data());
  }
}

}  // namespace

const Kernels* avx512_kernels() {
  static constexpr Kernels kernels{"avx512", weigh, diff};
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") ? &kernels : nullptr;
}

}  // namespace weightcast
