#include <immintrin.h>

#include <bit>

#include "patch/kernels/loops.h"

namespace weightcast {
namespace {

__m256i load(const std::byte* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }

// Exponents of 16-bit cells in the low byte of each: the sign is masked away, then the mantissa is shifted out. By
// multiplication here and below, because shifts share two ports with all the shuffles.
template <int ExponentBits>
__m256i exponents16(__m256i cells) {
  const __m256i unsigned_cells = _mm256_and_si256(cells, _mm256_set1_epi16(0x7fff));
  return _mm256_mulhi_epu16(unsigned_cells, _mm256_set1_epi16(1 << (ExponentBits + 1)));
}

__m256i exponents32(__m256i cells) { return _mm256_srli_epi32(_mm256_slli_epi32(cells, 1), 24); }

// Sixteen-byte tables of the low and the high bytes of the weights, in both lanes, and the window's low end.
struct WeightTables {
  __m256i low, high, key_low, last_class;

  explicit WeightTables(const HazardModel& model) {
    alignas(16) std::array<std::uint8_t, kHazardClasses> low_bytes{}, high_bytes{};
    for (unsigned c = 0; c < kHazardClasses; ++c) {
      low_bytes[c] = std::uint8_t(model.weights[c]);
      high_bytes[c] = std::uint8_t(model.weights[c] >> 8);
    }
    low = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(low_bytes.data())));
    high = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(high_bytes.data())));
    key_low = _mm256_set1_epi8(char(model.key_low));
    last_class = _mm256_set1_epi8(char(kHazardClasses - 1));
  }
};

// `keys`: the keys of 32 cells, each 128-bit lane holding eight cells of the first sixteen, then eight of the second;
// unpacking to words undoes that order.
// Inlined by force: the tables must stay in registers. Returns where the next block begins.
[[gnu::always_inline]] inline std::uint32_t weigh_block(__m256i keys, const WeightTables& tables, std::size_t block,
                                                        std::uint32_t begin, WeightedChunk& out) {
  const __m256i classes = _mm256_min_epu8(_mm256_subs_epu8(keys, tables.key_low), tables.last_class);
  const __m256i low = _mm256_shuffle_epi8(tables.low, classes);
  const __m256i high = _mm256_shuffle_epi8(tables.high, classes);
  auto* weights = reinterpret_cast<__m256i*>(out.weights.data() + block * kBlockCells);
  _mm256_store_si256(weights, _mm256_unpacklo_epi8(low, high));
  _mm256_store_si256(weights + 1, _mm256_unpackhi_epi8(low, high));
  const __m256i zero = _mm256_setzero_si256();
  // Four sums of eight cells, in the order of groups 0, 2, 1, 3.
  const __m256i high_sums = _mm256_mul_epu32(_mm256_sad_epu8(high, zero), _mm256_set1_epi64x(256));
  const __m256i sums = _mm256_add_epi64(_mm256_sad_epu8(low, zero), high_sums);
  const __m256i order = _mm256_setr_epi32(0, 4, 2, 6, 1, 3, 5, 7);
  const __m128i groups = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(sums, order));
  _mm_store_si128(reinterpret_cast<__m128i*>(out.group_sums.data() + block * kBlockGroups), groups);
  const __m128i pairs = _mm_add_epi32(groups, _mm_shuffle_epi32(groups, 0x4e));
  out.block_begins[block] = begin;
  return begin + std::uint32_t(_mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32(pairs, 0xb1))));
}

template <int ExponentBits>
std::uint32_t weigh16(const std::byte* cells, std::size_t blocks, const HazardModel& model, WeightedChunk& out) {
  const WeightTables tables(model);
  std::uint32_t begin = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::byte* at = cells + b * kBlockCells * 2;
    const __m256i keys =
        _mm256_packus_epi16(exponents16<ExponentBits>(load(at)), exponents16<ExponentBits>(load(at + 32)));
    begin = weigh_block(keys, tables, b, begin, out);
  }
  return begin;
}

std::uint32_t weigh32(const std::byte* cells, std::size_t blocks, const HazardModel& model, WeightedChunk& out) {
  const WeightTables tables(model);
  std::uint32_t begin = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::byte* at = cells + b * kBlockCells * 4;
    // Packing works within lanes; the permutation puts each sixteen cells in order before the next packing.
    const auto sixteen = [at](int i) {
      const __m256i packed = _mm256_packus_epi32(exponents32(load(at + 64 * i)), exponents32(load(at + 64 * i + 32)));
      return _mm256_permute4x64_epi64(packed, 0xd8);
    };
    begin = weigh_block(_mm256_packus_epi16(sixteen(0), sixteen(1)), tables, b, begin, out);
  }
  return begin;
}

template <int MantissaBits, int ExponentBits>
std::uint32_t weigh8(const std::byte* cells, std::size_t blocks, const HazardModel& model, WeightedChunk& out) {
  const WeightTables tables(model);
  std::uint32_t begin = 0;
  const __m256i mask = _mm256_set1_epi8((1 << ExponentBits) - 1);
  for (std::size_t b = 0; b < blocks; ++b) {
    const __m256i keys = _mm256_and_si256(_mm256_srli_epi16(load(cells + b * kBlockCells), MantissaBits), mask);
    begin = weigh_block(_mm256_permute4x64_epi64(keys, 0xd8), tables, b, begin, out);
  }
  return begin;
}

/// Of cells that have no exponent, and so all the same weight.
std::uint32_t weigh_alike(std::size_t blocks, const HazardModel& model, WeightedChunk& out) {
  const std::uint16_t weight = model.weights[model.class_of(0)];
  const __m256i weights = _mm256_set1_epi16(short(weight));
  const __m128i sums = _mm_set1_epi32(weight * int(kGroupCells));
  std::uint32_t begin = 0;
  for (std::size_t b = 0; b < blocks; ++b, begin += std::uint32_t(weight * kBlockCells)) {
    auto* at = reinterpret_cast<__m256i*>(out.weights.data() + b * kBlockCells);
    _mm256_store_si256(at, weights);
    _mm256_store_si256(at + 1, weights);
    _mm_store_si128(reinterpret_cast<__m128i*>(out.group_sums.data() + b * kBlockGroups), sums);
    out.block_begins[b] = begin;
  }
  return begin;
}

void weigh(CellKind kind, const std::byte* cells, std::size_t count, const HazardModel& model, WeightedChunk& out) {
  std::size_t blocks = count / kBlockCells;
  std::uint32_t end = 0;
  switch (kind) {
    case CellKind::kBf16: end = weigh16<8>(cells, blocks, model, out); break;
    case CellKind::kF16: end = weigh16<5>(cells, blocks, model, out); break;
    case CellKind::kF32: end = weigh32(cells, blocks, model, out); break;
    case CellKind::kF8E4M3: end = weigh8<3, 4>(cells, blocks, model, out); break;
    case CellKind::kF8E5M2: end = weigh8<2, 5>(cells, blocks, model, out); break;
    case CellKind::kF64: blocks = 0; break;
    default: end = weigh_alike(blocks, model, out); break;
  }
  out.block_begins[blocks] = end;
  with_cell_kind(kind, [&]<CellKind Kind>() { weigh_cells<Kind>(cells, blocks * kBlockCells, count, model, out); });
  finish_sums(blocks, count, out);
}

template <unsigned CellBytes>
std::uint32_t diff_block(const std::byte* before, const std::byte* after) {
  const auto equal = [&](std::size_t i) {
    const __m256i a = load(before + 32 * i), b = load(after + 32 * i);
    if constexpr (CellBytes == 1) return _mm256_cmpeq_epi8(a, b);
    if constexpr (CellBytes == 2) return _mm256_cmpeq_epi16(a, b);
    if constexpr (CellBytes == 4) return _mm256_cmpeq_epi32(a, b);
    return _mm256_cmpeq_epi64(a, b);
  };
  std::uint32_t same = 0;
  if constexpr (CellBytes == 1) {
    same = std::uint32_t(_mm256_movemask_epi8(equal(0)));
  } else if constexpr (CellBytes == 2) {
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(equal(0), equal(1)), 0xd8);
    same = std::uint32_t(_mm256_movemask_epi8(packed));
  } else if constexpr (CellBytes == 4) {
    for (unsigned i = 0; i < 4; ++i) {
      same |= std::uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(equal(i)))) << (8 * i);
    }
  } else {
    for (unsigned i = 0; i < 8; ++i) {
      same |= std::uint32_t(_mm256_movemask_pd(_mm256_castsi256_pd(equal(i)))) << (4 * i);
    }
  }
  return ~same;
}

template <unsigned CellBytes>
std::size_t diff_chunk(const std::byte* before, const std::byte* after, std::size_t count, ChangedCells& out) {
  const std::size_t blocks = count / kBlockCells;
  std::size_t changed = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t offset = b * kBlockCells * CellBytes;
    std::uint32_t mask = diff_block<CellBytes>(before + offset, after + offset);
    const std::size_t first = changed;
    changed += std::size_t(std::popcount(mask));
    // Two are written whether or not there are any: at 1 % density the branch below is almost never taken, where one on
    // the mask itself would be guessed wrong for every other change.
    out[first] = std::uint16_t(b * kBlockCells + std::size_t(std::countr_zero(mask)));
    mask &= mask - 1;
    out[first + 1] = std::uint16_t(b * kBlockCells + std::size_t(std::countr_zero(mask)));
    if (changed - first <= 2) continue;
    for (std::size_t i = first + 2; i < changed; ++i) {
      mask &= mask - 1;
      out[i] = std::uint16_t(b * kBlockCells + std::size_t(std::countr_zero(mask)));
    }
  }
  return changed + diff_cells<CellBytes>(before, after, blocks * kBlockCells, count, out.data() + changed);
}

std::size_t diff(unsigned cell_bytes, const std::byte* before, const std::byte* after, std::size_t count,
                 ChangedCells& out) {
  switch (cell_bytes) {
    case 1: return diff_chunk<1>(before, after, count, out);
    case 2: return diff_chunk<2>(before, after, count, out);
    case 4: return diff_chunk<4>(before, after, count, out);
    default: return diff_chunk<8>(before, after, count, out);
  }
}

}  // namespace

const Kernels* avx2_kernels() {
  static constexpr Kernels kernels{"avx2", weigh, diff};
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("popcnt") ? &kernels
                                                                                                             : nullptr;
}

}  // namespace weightcast
