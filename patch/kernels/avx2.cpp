#include <immintrin.h>

#include <algorithm>
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
std::size_t diff_chunk(const std::byte* before, const std::byte* after, std::size_t count, ChunkChanges& out) {
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
                 ChunkChanges& out) {
  return with_cell_bytes(cell_bytes,
                         [&]<unsigned CellBytes>() { return diff_chunk<CellBytes>(before, after, count, out); });
}

void store(std::byte* at, __m256i bytes) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), bytes); }

template <unsigned CellBytes>
__m256i rotate_left(__m256i cells) {
  if constexpr (CellBytes == 1) {
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(cells, 7), _mm256_set1_epi8(1));
    return _mm256_or_si256(_mm256_add_epi8(cells, cells), high);
  }
  if constexpr (CellBytes == 2) return _mm256_or_si256(_mm256_slli_epi16(cells, 1), _mm256_srli_epi16(cells, 15));
  return _mm256_or_si256(_mm256_slli_epi32(cells, 1), _mm256_srli_epi32(cells, 31));
}

template <unsigned CellBytes>
__m256i rotate_right(__m256i cells) {
  if constexpr (CellBytes == 1) {
    const __m256i low = _mm256_and_si256(_mm256_srli_epi16(cells, 1), _mm256_set1_epi8(0x7f));
    return _mm256_or_si256(low, _mm256_slli_epi16(_mm256_and_si256(cells, _mm256_set1_epi8(1)), 7));
  }
  if constexpr (CellBytes == 2) return _mm256_or_si256(_mm256_srli_epi16(cells, 1), _mm256_slli_epi16(cells, 15));
  return _mm256_or_si256(_mm256_srli_epi32(cells, 1), _mm256_slli_epi32(cells, 31));
}

// What is split of the 32 bytes at `offset`.
template <unsigned CellBytes>
[[gnu::always_inline]] inline __m256i to_split(bool rotate, const std::byte* cells, const std::byte* before,
                                               std::size_t offset) {
  const __m256i now = load(cells + offset);
  if (before != nullptr) return _mm256_xor_si256(now, load(before + offset));
  return rotate ? rotate_left<CellBytes>(now) : now;
}

template <unsigned CellBytes>
[[gnu::always_inline]] inline void store_merged(bool rotate, __m256i merged, const std::byte* before,
                                                std::size_t offset, std::byte* cells) {
  if (before != nullptr) {
    merged = _mm256_xor_si256(merged, load(before + offset));
  } else if (rotate) {
    merged = rotate_right<CellBytes>(merged);
  }
  store(cells + offset, merged);
}

// Within each half of a vector: the first bytes of four cells, then their second ones, ...
__m256i bytes_of_four(__m256i cells) {
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm256_shuffle_epi8(cells, _mm256_broadcastsi128_si256(order));
}

template <unsigned CellBytes>
void split_blocks(bool rotate, const std::byte* cells, const std::byte* before, std::size_t blocks,
                  std::byte* const* planes) {
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t at = b * kBlockCells * CellBytes, i = b * kBlockCells;
    const auto part = [&](std::size_t n) { return to_split<CellBytes>(rotate, cells, before, at + 32 * n); };
    if constexpr (CellBytes == 1) {
      store(planes[0] + i, part(0));
    } else if constexpr (CellBytes == 2) {
      const __m256i x = part(0), y = part(1), low = _mm256_set1_epi16(0xff);
      const __m256i first = _mm256_packus_epi16(_mm256_and_si256(x, low), _mm256_and_si256(y, low));
      const __m256i second = _mm256_packus_epi16(_mm256_srli_epi16(x, 8), _mm256_srli_epi16(y, 8));
      store(planes[0] + i, _mm256_permute4x64_epi64(first, 0xd8));
      store(planes[1] + i, _mm256_permute4x64_epi64(second, 0xd8));
    } else {
      const __m256i a = bytes_of_four(part(0)), c = bytes_of_four(part(1));
      const __m256i d = bytes_of_four(part(2)), e = bytes_of_four(part(3));
      const __m256i low_ac = _mm256_unpacklo_epi32(a, c), high_ac = _mm256_unpackhi_epi32(a, c);
      const __m256i low_de = _mm256_unpacklo_epi32(d, e), high_de = _mm256_unpackhi_epi32(d, e);
      const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
      const auto put = [&](unsigned p, __m256i plane) {
        store(planes[p] + i, _mm256_permutevar8x32_epi32(plane, order));
      };
      put(0, _mm256_unpacklo_epi64(low_ac, low_de));
      put(1, _mm256_unpackhi_epi64(low_ac, low_de));
      put(2, _mm256_unpacklo_epi64(high_ac, high_de));
      put(3, _mm256_unpackhi_epi64(high_ac, high_de));
    }
  }
}

template <unsigned CellBytes>
void merge_blocks(bool rotate, const std::byte* const* planes, const std::byte* before, std::size_t blocks,
                  std::byte* cells) {
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t at = b * kBlockCells * CellBytes, i = b * kBlockCells;
    const auto put = [&](std::size_t n, __m256i merged) {
      store_merged<CellBytes>(rotate, merged, before, at + 32 * n, cells);
    };
    if constexpr (CellBytes == 1) {
      put(0, load(planes[0] + i));
    } else if constexpr (CellBytes == 2) {
      // Unpacking works within halves: so the quarters that belong there go there first.
      const __m256i first = _mm256_permute4x64_epi64(load(planes[0] + i), 0xd8);
      const __m256i second = _mm256_permute4x64_epi64(load(planes[1] + i), 0xd8);
      put(0, _mm256_unpacklo_epi8(first, second));
      put(1, _mm256_unpackhi_epi8(first, second));
    } else {
      const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
      const auto plane = [&](unsigned p) { return _mm256_permutevar8x32_epi32(load(planes[p] + i), order); };
      const __m256i a = plane(0), c = plane(1), d = plane(2), e = plane(3);
      const __m256i low_ac = _mm256_unpacklo_epi32(a, c), high_ac = _mm256_unpackhi_epi32(a, c);
      const __m256i low_de = _mm256_unpacklo_epi32(d, e), high_de = _mm256_unpackhi_epi32(d, e);
      put(0, bytes_of_four(_mm256_unpacklo_epi64(low_ac, low_de)));
      put(1, bytes_of_four(_mm256_unpackhi_epi64(low_ac, low_de)));
      put(2, bytes_of_four(_mm256_unpacklo_epi64(high_ac, high_de)));
      put(3, bytes_of_four(_mm256_unpackhi_epi64(high_ac, high_de)));
    }
  }
}

// Cells of eight bytes have no vector code here.
template <unsigned CellBytes>
constexpr bool kHasBlocks = CellBytes < 8;

void split(unsigned cell_bytes, bool rotate, const std::byte* cells, const std::byte* before, std::size_t count,
           std::byte* const* planes) {
  with_cell_bytes(cell_bytes, [&]<unsigned CellBytes>() {
    const std::size_t blocks = kHasBlocks<CellBytes> ? count / kBlockCells : 0;
    if constexpr (kHasBlocks<CellBytes>) split_blocks<CellBytes>(rotate, cells, before, blocks, planes);
    split_cells<CellBytes>(rotate, cells, before, blocks * kBlockCells, count, planes);
  });
}

void merge(unsigned cell_bytes, bool rotate, const std::byte* const* planes, const std::byte* before, std::size_t count,
           std::byte* cells) {
  with_cell_bytes(cell_bytes, [&]<unsigned CellBytes>() {
    const std::size_t blocks = kHasBlocks<CellBytes> ? count / kBlockCells : 0;
    if constexpr (kHasBlocks<CellBytes>) merge_blocks<CellBytes>(rotate, planes, before, blocks, cells);
    merge_cells<CellBytes>(rotate, planes, before, blocks * kBlockCells, count, cells);
  });
}

ByteRange range(const std::byte* bytes, std::size_t count) {
  constexpr std::size_t kVectors = 4;
  __m256i least[kVectors], greatest[kVectors];
  std::size_t i = 0;
  std::fill(std::begin(least), std::end(least), _mm256_set1_epi8(char(bytes[0])));
  std::fill(std::begin(greatest), std::end(greatest), _mm256_set1_epi8(char(bytes[0])));
  for (; i + 32 * kVectors <= count; i += 32 * kVectors) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < kVectors; ++v) {
      const __m256i block = load(bytes + i + 32 * v);
      least[v] = _mm256_min_epu8(least[v], block);
      greatest[v] = _mm256_max_epu8(greatest[v], block);
    }
  }
  ByteRange all{255, 0};
  const auto add = [&all](const std::byte* from, std::size_t size) {
    for (std::size_t at = 0; at < size; ++at) {
      all.least = std::min(all.least, std::to_integer<std::uint8_t>(from[at]));
      all.greatest = std::max(all.greatest, std::to_integer<std::uint8_t>(from[at]));
    }
  };
  add(bytes + i, count - i);
  add(reinterpret_cast<const std::byte*>(least), sizeof least);
  add(reinterpret_cast<const std::byte*>(greatest), sizeof greatest);
  return all;
}

// For each mask of eight lanes: which lane each place of a vector takes.
using Permutations = std::array<std::array<std::uint32_t, 8>, 256>;

// The lanes of the mask take what follows in the stream, in their order.
alignas(32) constexpr Permutations kExpand = [] {
  Permutations all{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    for (unsigned lane = 0, next = 0; lane < 8; ++lane) {
      all[mask][lane] = next;
      next += mask >> lane & 1;
    }
  }
  return all;
}();

// The lanes of the mask go to the end of the vector, in their order.
alignas(32) constexpr Permutations kCompress = [] {
  Permutations all{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned place = 8 - unsigned(std::popcount(mask));
    for (unsigned lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) all[mask][place++] = lane;
    }
  }
  return all;
}();

__m256i permutation(const Permutations& all, unsigned mask) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(all[mask].data()));
}

struct LaneStates {
  __m256i vectors[4];

  explicit LaneStates(const ByteStates& states) {
    for (unsigned v = 0; v < 4; ++v) {
      vectors[v] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(states.data() + 8 * v));
    }
  }
  void store(ByteStates& states) const {
    for (unsigned v = 0; v < 4; ++v) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(states.data() + 8 * v), vectors[v]);
    }
  }
};

unsigned mask_of(__m256i lanes) { return unsigned(_mm256_movemask_ps(_mm256_castsi256_ps(lanes))); }

// 1 / f, a little below it. An integer off the bits of a number makes it less by so many of its last places: by four,
// which is more than what conversion, division and multiplication round up together.
__m256 reciprocal_below(__m256i frequency) {
  const __m256 reciprocal = _mm256_div_ps(_mm256_set1_ps(1), _mm256_cvtepi32_ps(frequency));
  return _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_castps_si256(reciprocal), _mm256_set1_epi32(4)));
}

// state = (state / f << 12) + state % f + start. The quotient is below 2^19, so that one of single precision by
// reciprocal_below() is the true one or one less; the remainder tells.
__m256i put_symbol(__m256i state, __m256i frequency, __m256 reciprocal, __m256i start) {
  const __m256i quotient = _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(state), reciprocal));
  const __m256i rest = _mm256_sub_epi32(state, _mm256_mullo_epi32(quotient, frequency));
  const __m256i right = _mm256_cmpgt_epi32(frequency, rest);
  const __m256i next = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(quotient, kByteBits), start), rest);
  // One more of the quotient, one frequency less of the remainder.
  const __m256i step = _mm256_sub_epi32(_mm256_set1_epi32(kByteTotal), frequency);
  return _mm256_add_epi32(next, _mm256_andnot_si256(right, step));
}

std::uint16_t* put_bytes(const ByteSymbols& symbols, ByteStates& states, const std::byte* bytes, std::size_t count,
                         std::uint16_t* words) {
  LaneStates lanes(states);
  const __m256i low16 = _mm256_set1_epi32(0xffff), sixteen = _mm256_set1_epi32(16);
  for (std::size_t i = count; i > 0;) {
    i -= kByteLanes;
#pragma GCC unroll 4
    for (unsigned turn = 0; turn < 4; ++turn) {
      const unsigned v = 3 - turn;
      const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + i + 8 * v));
      const __m256i symbol = _mm256_i32gather_epi32(reinterpret_cast<const int*>(symbols.data()),
                                                    _mm256_cvtepu8_epi32(eight), sizeof symbols[0]);
      const __m256i frequency = _mm256_and_si256(symbol, low16), start = _mm256_srli_epi32(symbol, 16);
      __m256i& state = lanes.vectors[v];
      const __m256i fits = _mm256_cmpgt_epi32(_mm256_slli_epi32(frequency, 31 - kByteBits), state);
      const unsigned full = mask_of(fits) ^ 0xff;
      const __m256i put = _mm256_permutevar8x32_epi32(_mm256_and_si256(state, low16), permutation(kCompress, full));
      const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(put, put), 0x08);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(words - 8), _mm256_castsi256_si128(packed));
      words -= std::popcount(full);
      state = _mm256_srlv_epi32(state, _mm256_andnot_si256(fits, sixteen));
      state = put_symbol(state, frequency, reciprocal_below(frequency), start);
    }
  }
  lanes.store(states);
  return words;
}

// `put` is given the bytes of a group and where the group begins.
template <typename Put>
[[gnu::always_inline]] inline std::size_t take_groups(const ByteSlots& slots, ByteStates& states,
                                                      const std::byte*& words, const std::byte* words_end,
                                                      std::size_t count, const Put& put) {
  LaneStates lanes(states);
  const __m256i low12 = _mm256_set1_epi32(kByteTotal - 1), lowest = _mm256_set1_epi32(kByteStateLow);
  const __m256i sixteen = _mm256_set1_epi32(16);
  const std::byte* next = words;
  std::size_t i = 0;
  for (; i + kByteLanes <= count && words_end - next >= std::ptrdiff_t(kByteGroupWordBytes); i += kByteLanes) {
    __m256i taken[4];
#pragma GCC unroll 4
    for (unsigned v = 0; v < 4; ++v) {
      __m256i& state = lanes.vectors[v];
      const __m256i slot = _mm256_i32gather_epi32(reinterpret_cast<const int*>(slots.data()),
                                                  _mm256_and_si256(state, low12), sizeof slots[0]);
      taken[v] = _mm256_srli_epi32(slot, 24);
      const __m256i product = _mm256_mullo_epi32(_mm256_and_si256(slot, low12), _mm256_srli_epi32(state, kByteBits));
      state = _mm256_add_epi32(product, _mm256_and_si256(_mm256_srli_epi32(slot, 12), low12));
    }
#pragma GCC unroll 4
    for (unsigned v = 0; v < 4; ++v) {
      __m256i& state = lanes.vectors[v];
      const __m256i wants = _mm256_cmpgt_epi32(lowest, state);
      const unsigned mask = mask_of(wants);
      const __m256i eight = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(next)));
      const __m256i word = _mm256_permutevar8x32_epi32(eight, permutation(kExpand, mask));
      state =
          _mm256_or_si256(_mm256_sllv_epi32(state, _mm256_and_si256(wants, sixteen)), _mm256_and_si256(wants, word));
      next += 2 * std::popcount(mask);
    }
    const __m256i low = _mm256_packus_epi32(taken[0], taken[1]), high = _mm256_packus_epi32(taken[2], taken[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    put(_mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order), i);
  }
  lanes.store(states);
  words = next;
  return i;
}

std::size_t take_bytes(const ByteSlots& slots, ByteStates& states, const std::byte*& words, const std::byte* words_end,
                       std::byte* bytes, std::size_t count) {
  return take_groups(slots, states, words, words_end, count,
                     [bytes](__m256i taken, std::size_t at) { store(bytes + at, taken); });
}

// A group waits for its loads, one after the other, so the merging costs next to nothing.
std::size_t take_cells(const ByteSlots& slots, ByteStates& states, const std::byte*& words, const std::byte* words_end,
                       const std::byte* low, bool rotate, std::byte* cells, std::size_t count) {
  return take_groups(slots, states, words, words_end, count, [=](__m256i taken, std::size_t at) {
    const __m256i first = _mm256_permute4x64_epi64(load(low + at), 0xd8);
    const __m256i second = _mm256_permute4x64_epi64(taken, 0xd8);
    store_merged<2>(rotate, _mm256_unpacklo_epi8(first, second), nullptr, 2 * at, cells);
    store_merged<2>(rotate, _mm256_unpackhi_epi8(first, second), nullptr, 2 * at + 32, cells);
  });
}

}  // namespace

const Kernels& avx2_kernels() {
  static constexpr Kernels kernels{"avx2",      weigh, diff,      split,      merge,     weighted_sum,
                                   count_equal, range, put_bytes, take_bytes, take_cells};
  return kernels;
}

}  // namespace weightcast
