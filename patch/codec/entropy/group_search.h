#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "patch/kernels/kernels.h"

namespace weightcast {

/// Where a point on the hazard line falls inside a group of eight cells.
struct GroupHit {
  std::uint32_t index;
  /// Sum of the weights before it.
  std::uint32_t before;
  /// The same, its own weight included.
  std::uint32_t end;
};

// SSE2 belongs to every x86-64 processor, so these need no kernel of their own: they are called once per changed cell
// and must be inlined. The vector versions save the mispredicted end of an eight-step loop, 5 ns of about 25 per cell.

/// The block that holds `point`, which is below the chunk's end: the first b at or after `from` with
/// begins[b + 1] > point. `from` is not beyond it.
[[nodiscard, gnu::always_inline]] inline std::size_t find_block(const std::uint32_t* begins, std::size_t from,
                                                                std::uint32_t point) {
#if defined(__SSE2__)
  const __m128i wanted = _mm_set1_epi32(int(point));
  static_assert(kSearchBlocks == 16);
  for (;; from += kSearchBlocks) {
    const auto beyond = [begins, from, wanted](std::size_t i) {
      const __m128i ends = _mm_loadu_si128(reinterpret_cast<const __m128i*>(begins + from + 1 + i));
      return _mm_cmpgt_epi32(ends, wanted);
    };
    const __m128i low = _mm_packs_epi32(beyond(0), beyond(4)), high = _mm_packs_epi32(beyond(8), beyond(12));
    const auto mask = unsigned(_mm_movemask_epi8(_mm_packs_epi16(low, high)));
    if (mask != 0) return from + std::size_t(std::countr_zero(mask));
  }
#else
  while (begins[from + 1] <= point) ++from;
  return from;
#endif
}

/// The first cell of the group whose end lies beyond `point`, which is below the group's sum.
[[nodiscard, gnu::always_inline]] inline GroupHit find_in_group(const std::uint16_t* weights, std::uint32_t point) {
#if defined(__SSE2__)
  const __m128i zero = _mm_setzero_si128();
  const __m128i words = _mm_load_si128(reinterpret_cast<const __m128i*>(weights));
  const auto running = [](__m128i sums) {
    sums = _mm_add_epi32(sums, _mm_slli_si128(sums, 4));
    return _mm_add_epi32(sums, _mm_slli_si128(sums, 8));
  };
  const __m128i low = running(_mm_unpacklo_epi16(words, zero));
  const __m128i high = _mm_add_epi32(running(_mm_unpackhi_epi16(words, zero)), _mm_shuffle_epi32(low, 0xff));
  const __m128i wanted = _mm_set1_epi32(int(point));
  // Sums stay below 2^19, so that signed comparison is right.
  const int beyond = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpgt_epi32(low, wanted))) |
                     _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpgt_epi32(high, wanted))) << 4;
  const auto index = unsigned(std::countr_zero(unsigned(beyond) | 0x80u));
  // All the sums, from 0 on: two loads that do not wait for each other.
  alignas(16) std::uint32_t sums[kGroupCells + 4];
  _mm_store_si128(reinterpret_cast<__m128i*>(sums), zero);
  _mm_store_si128(reinterpret_cast<__m128i*>(sums + 4), low);
  _mm_store_si128(reinterpret_cast<__m128i*>(sums + 8), high);
  return {index, sums[index + 3], sums[index + 4]};
#else
  std::uint32_t before = 0, index = 0;
  while (index + 1 < kGroupCells && before + weights[index] <= point) before += weights[index++];
  return {index, before, before + weights[index]};
#endif
}

/// Sum of the first `count` < 4 of a block's group sums.
[[nodiscard, gnu::always_inline]] inline std::uint32_t sum_of_groups(const std::uint32_t* sums, std::size_t count) {
  static_assert(kBlockGroups == 4);
#if defined(__SSE2__)
  alignas(16) static constexpr std::uint32_t kMasks[7] = {~0u, ~0u, ~0u};
  const __m128i mask = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kMasks + 3 - count));
  const __m128i chosen = _mm_and_si128(_mm_load_si128(reinterpret_cast<const __m128i*>(sums)), mask);
  const __m128i pairs = _mm_add_epi32(chosen, _mm_shuffle_epi32(chosen, 0x4e));
  return std::uint32_t(_mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32(pairs, 0xb1))));
#else
  return (count > 0 ? sums[0] : 0) + (count > 1 ? sums[1] : 0) + (count > 2 ? sums[2] : 0);
#endif
}

/// Sum of the first `count` < 8 weights of a group.
[[nodiscard, gnu::always_inline]] inline std::uint32_t sum_in_group(const std::uint16_t* weights, unsigned count) {
#if defined(__SSE2__)
  alignas(16) static constexpr std::uint16_t kMasks[16] = {0xffff, 0xffff, 0xffff, 0xffff,
                                                           0xffff, 0xffff, 0xffff, 0xffff};
  const __m128i mask = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kMasks + 8 - count));
  const __m128i words = _mm_and_si128(_mm_load_si128(reinterpret_cast<const __m128i*>(weights)), mask);
  const __m128i zero = _mm_setzero_si128();
  const __m128i low = _mm_sad_epu8(_mm_and_si128(words, _mm_set1_epi16(0xff)), zero);
  const __m128i high = _mm_sad_epu8(_mm_srli_epi16(words, 8), zero);
  const __m128i sums = _mm_add_epi64(low, _mm_slli_epi64(high, 8));
  return std::uint32_t(_mm_cvtsi128_si32(_mm_add_epi64(sums, _mm_unpackhi_epi64(sums, sums))));
#else
  std::uint32_t sum = 0;
  for (unsigned i = 0; i < count; ++i) sum += weights[i];
  return sum;
#endif
}

}  // namespace weightcast
