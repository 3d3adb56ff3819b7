#pragma once

// The loops of adamw_kernels.h, written so that the compiler makes vectors of them. They take raw pointers and call
// nothing of the standard library: an inline function of it, compiled here for a newer processor, could end up in other
// files' use.

#include "trainer/optimiser/adamw_kernels.h"

namespace weightcast {
namespace {

// The weights' old and new bits of so many cells stay in the first-level cache between the loops.
constexpr std::size_t kRunCells = 256;
constexpr std::size_t kSums = 16;

inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }

template <bool kGradientIsBf16>
inline float gradient_at(const void* gradient, std::size_t i) {
  if constexpr (kGradientIsBf16) {
    return float_of(static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(gradient)[i]) << 16);
  } else {
    return static_cast<const float*>(gradient)[i];
  }
}

/// Moments of cells that get no gradient for long would end as denormal numbers, on which processors are ten times
/// slower, and stay there.
inline float flushed(float value) { return (bits_of(value) & 0x7fffffff) < 0x00800000 ? 0.0f : value; }

inline std::uint32_t quiet_nan_or(std::uint32_t rounded, std::uint32_t bits) {
  return (bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded;
}

inline std::uint32_t nearest_bf16(std::uint32_t bits) {
  return quiet_nan_or((bits + 0x7fff + (bits >> 16 & 1)) >> 16, bits);
}

/// 16 random bits from the number of a cell and the key of an update (lowbias32 of Wellons, twice keyed).
inline std::uint32_t noise(std::uint32_t cell, std::uint64_t key) {
  std::uint32_t x = cell ^ static_cast<std::uint32_t>(key);
  x ^= x >> 16;
  x *= 0x7feb352d;
  x ^= x >> 15;
  x += static_cast<std::uint32_t>(key >> 32);
  x *= 0x846ca68b;
  x ^= x >> 16;
  return x & 0xffff;
}

inline std::uint32_t stochastic_bf16(std::uint32_t bits, std::uint32_t random) {
  return quiet_nan_or((bits + random) >> 16, bits);
}

/// Bit i of the result is byte i of 64, each of which is 0 or 1.
inline std::uint64_t packed_flags(const std::uint8_t* flags) {
  std::uint64_t packed = 0;
  for (int group = 0; group < 8; ++group) {
    std::uint64_t bytes;
    __builtin_memcpy(&bytes, flags + 8 * group, 8);
    packed |= (bytes * 0x0102040810204080 >> 56) << (8 * group);
  }
  return packed;
}

template <bool kGradientIsBf16, WeightCells kWeights>
void update_run(const AdamWBlock& block, const AdamWScalars& scalars, std::size_t begin, std::size_t cells) {
  const AdamWScalars s = scalars;
  float* __restrict master = block.master + begin;
  float* __restrict moment1 = block.moment1 + begin;
  float* __restrict moment2 = block.moment2 + begin;
  const auto* __restrict gradient =
      static_cast<const char*>(block.gradient) + begin * (kGradientIsBf16 ? sizeof(std::uint16_t) : sizeof(float));
  const std::uint32_t first = block.first + static_cast<std::uint32_t>(begin);
  alignas(64) std::uint8_t flags[kRunCells];
  alignas(64) std::uint16_t rounded[kRunCells];

  for (std::size_t i = 0; i < cells; ++i) {
    const float g = gradient_at<kGradientIsBf16>(gradient, i) * s.gradient_scale;
    const float m = flushed(moment1[i] * s.beta1 + g * s.beta1_rest);
    const float v = flushed(moment2[i] * s.beta2 + g * g * s.beta2_rest);
    const float old = master[i];
    const float updated = old * s.decay - m * s.step_size / (__builtin_sqrtf(v) * s.inverse_root + s.epsilon);
    moment1[i] = m;
    moment2[i] = v;
    master[i] = updated;
    if constexpr (kWeights == WeightCells::kFloat) {
      flags[i] = bits_of(old) != bits_of(updated);
    } else if constexpr (kWeights == WeightCells::kBf16Nearest) {
      rounded[i] = static_cast<std::uint16_t>(nearest_bf16(bits_of(updated)));
    } else {
      rounded[i] = static_cast<std::uint16_t>(
          stochastic_bf16(bits_of(updated), noise(first + static_cast<std::uint32_t>(i), s.rounding_key)));
    }
  }

  if constexpr (kWeights != WeightCells::kFloat) {
    const std::uint16_t* __restrict bf16 = block.bf16 + begin;
    for (std::size_t i = 0; i < cells; ++i) flags[i] = bf16[i] != rounded[i];
  }
  const std::size_t words = (cells + 63) / 64;
  for (std::size_t i = cells; i < 64 * words; ++i) flags[i] = 0;
  for (std::size_t word = 0; word < words; ++word) {
    const std::uint64_t packed = packed_flags(flags + 64 * word);
    if (packed == 0) continue;  // most cache lines of BF16 weights need no write: a step changes few cells
    block.changed[begin / 64 + word] |= packed;
    if constexpr (kWeights != WeightCells::kFloat) {
      const std::size_t left = cells - 64 * word;
      __builtin_memcpy(block.bf16 + begin + 64 * word, rounded + 64 * word, 2 * (left < 64 ? left : 64));
    }
  }
}

template <bool kGradientIsBf16, WeightCells kWeights>
void update_cells(const AdamWBlock& block, const AdamWScalars& scalars) {
  for (std::size_t begin = 0; begin < block.cells; begin += kRunCells) {
    const std::size_t left = block.cells - begin;
    update_run<kGradientIsBf16, kWeights>(block, scalars, begin, left < kRunCells ? left : kRunCells);
  }
}

template <bool kGradientIsBf16>
void update_weights(const AdamWBlock& block, const AdamWScalars& scalars, WeightCells weights) {
  switch (weights) {
    case WeightCells::kFloat: return update_cells<kGradientIsBf16, WeightCells::kFloat>(block, scalars);
    case WeightCells::kBf16Nearest: return update_cells<kGradientIsBf16, WeightCells::kBf16Nearest>(block, scalars);
    case WeightCells::kBf16Stochastic:
      return update_cells<kGradientIsBf16, WeightCells::kBf16Stochastic>(block, scalars);
  }
}

template <bool kGradientIsBf16>
double squares(const void* gradient, std::size_t cells) {
  constexpr std::size_t kCellBytes = kGradientIsBf16 ? 2 : 4, kPrefetchCells = 512;
  static_assert(kRunCells % kSums == 0);
  double sums[kSums] = {};
  float run[kRunCells];
  for (std::size_t begin = 0; begin < cells; begin += kRunCells) {
    const std::size_t left = cells - begin, count = left < kRunCells ? left : kRunCells;
    for (std::size_t i = 0; i < count; ++i) run[i] = gradient_at<kGradientIsBf16>(gradient, begin + i);
    for (std::size_t i = count; i < kRunCells; ++i) run[i] = 0;
    for (std::size_t i = 0; i < kRunCells; i += kSums) {
      // One stream alone waits for memory. A prefetch past the end is harmless.
      __builtin_prefetch(static_cast<const char*>(gradient) + (begin + i + kPrefetchCells) * kCellBytes);
      for (std::size_t j = 0; j < kSums; ++j) sums[j] += static_cast<double>(run[i + j]) * run[i + j];
    }
  }
  for (std::size_t width = kSums / 2; width > 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return sums[0];
}

[[nodiscard]] AdamWKernels adamw_kernels_of_this_file() {
  return {[](const AdamWBlock& block, const AdamWScalars& scalars, bool gradient_is_bf16, WeightCells weights) {
            gradient_is_bf16 ? update_weights<true>(block, scalars, weights)
                             : update_weights<false>(block, scalars, weights);
          },
          [](const void* gradient, bool gradient_is_bf16, std::size_t cells) {
            return gradient_is_bf16 ? squares<true>(gradient, cells) : squares<false>(gradient, cells);
          }};
}

}  // namespace
}  // namespace weightcast
