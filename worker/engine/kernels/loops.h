#pragma once

// The loops of kernels.h over the compiler's vectors of WEIGHTCAST_VECTOR_BYTES. They take raw pointers and call
// nothing of the standard library: an inline function of it, compiled here for a newer processor, could end up in other
// files' use.

#if WEIGHTCAST_VECTOR_BYTES > 16
#include <immintrin.h>
#endif

#include "worker/engine/kernels/kernels.h"

namespace weightcast::kernels {
namespace {

constexpr std::size_t kLanes = WEIGHTCAST_VECTOR_BYTES / sizeof(float);

typedef float Floats __attribute__((vector_size(WEIGHTCAST_VECTOR_BYTES)));
typedef std::int32_t Ints __attribute__((vector_size(WEIGHTCAST_VECTOR_BYTES)));
typedef std::uint32_t Words __attribute__((vector_size(WEIGHTCAST_VECTOR_BYTES)));
typedef std::uint16_t HalfWords __attribute__((vector_size(WEIGHTCAST_VECTOR_BYTES / 2)));

inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }

inline Floats load(const float* from) {
  Floats result;
  __builtin_memcpy(&result, from, sizeof(result));
  return result;
}

/// By one instruction, where gcc 12 makes five of __builtin_convertvector(): 1.1 to 1.2 times the speed of a product.
/// With a mask of all lanes, which costs nothing: in what is without one, gcc sees a variable that is not initialized.
inline Words widened(HalfWords half) {
#if WEIGHTCAST_VECTOR_BYTES == 64
  return __builtin_bit_cast(Words, _mm512_maskz_cvtepu16_epi32(0xffff, __builtin_bit_cast(__m256i, half)));
#elif WEIGHTCAST_VECTOR_BYTES == 32
  return __builtin_bit_cast(Words, _mm256_cvtepu16_epi32(__builtin_bit_cast(__m128i, half)));
#else
  return __builtin_convertvector(half, Words);
#endif
}

inline Floats load(const std::uint16_t* from) {
  HalfWords half;
  __builtin_memcpy(&half, from, sizeof(half));
  return __builtin_bit_cast(Floats, widened(half) << 16);
}

/// The first `count` elements, fewer than kLanes, and then zeros.
template <typename Element>
inline Floats load_some(const Element* from, std::size_t count) {
  Element padded[kLanes] = {};
  for (std::size_t i = 0; i < count; ++i) padded[i] = from[i];
  return load(padded);
}

inline void store(float* to, Floats values) { __builtin_memcpy(to, &values, sizeof(values)); }

inline Floats all(float value) { return Floats{} + value; }

inline float sum_of(Floats values) {
  typedef float Quarter __attribute__((vector_size(16)));
  Quarter parts[WEIGHTCAST_VECTOR_BYTES / 16];
  __builtin_memcpy(parts, &values, sizeof(values));
#if WEIGHTCAST_VECTOR_BYTES == 64
  const Quarter sum = (parts[0] + parts[2]) + (parts[1] + parts[3]);
#elif WEIGHTCAST_VECTOR_BYTES == 32
  const Quarter sum = parts[0] + parts[1];
#else
  const Quarter sum = parts[0];
#endif
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

inline Floats greater_of(Floats a, Floats b) { return a > b ? a : b; }

/// e^x within 2 units in the last place, 0 below the least normal number. Cephes' expf by vectors.
inline Floats exp_of(Floats x) {
  const Floats least = all(-87.3F);
  const Floats bounded = greater_of(x < all(88.0F) ? x : all(88.0F), least);
  // Rounds to the nearest whole number.
  const Floats shifter = all(12582912.0F);
  const Floats shifted = bounded * all(1.44269504F) + shifter;
  const Floats n = shifted - shifter;
  const Floats r = (bounded - n * all(0.693359375F)) - n * all(-2.12194440e-4F);
  Floats p = all(1.9875691500e-4F);
  p = p * r + all(1.3981999507e-3F);
  p = p * r + all(8.3334519073e-3F);
  p = p * r + all(4.1665795894e-2F);
  p = p * r + all(1.6666665459e-1F);
  p = p * r + all(5.0000001201e-1F);
  p = p * r * r + r + all(1.0F);
  const Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
  const Floats result = p * __builtin_bit_cast(Floats, exponent);
  return x < least ? all(0.0F) : result;
}

/// Sums of kRows by kOutputs elements of a product.
template <int kRows, int kOutputs, typename Weight>
inline void linear_tile(const LinearTask& task, std::size_t row, std::size_t output) {
  const float* x = task.x + row * task.x_stride;
  const Weight* weight = static_cast<const Weight*>(task.weight) + output * task.weight_stride;
  const std::size_t size = task.size;
  Floats sums[kRows][kOutputs] = {};
  std::size_t k = 0;
  for (; k + kLanes <= size; k += kLanes) {
    Floats w[kOutputs];
    for (int j = 0; j < kOutputs; ++j) w[j] = load(weight + static_cast<std::size_t>(j) * task.weight_stride + k);
    for (int i = 0; i < kRows; ++i) {
      const Floats a = load(x + static_cast<std::size_t>(i) * task.x_stride + k);
      for (int j = 0; j < kOutputs; ++j) sums[i][j] += a * w[j];
    }
  }
  if (k < size) {
    const std::size_t rest = size - k;
    Floats w[kOutputs];
    for (int j = 0; j < kOutputs; ++j) {
      w[j] = load_some(weight + static_cast<std::size_t>(j) * task.weight_stride + k, rest);
    }
    for (int i = 0; i < kRows; ++i) {
      const Floats a = load_some(x + static_cast<std::size_t>(i) * task.x_stride + k, rest);
      for (int j = 0; j < kOutputs; ++j) sums[i][j] += a * w[j];
    }
  }
  for (int i = 0; i < kRows; ++i) {
    float* y = task.y + (row + static_cast<std::size_t>(i)) * task.y_stride + output;
    for (int j = 0; j < kOutputs; ++j) {
      y[j] = sum_of(sums[i][j]) + (task.bias == nullptr ? 0.0F : task.bias[output + static_cast<std::size_t>(j)]);
    }
  }
}

template <int kRows, int kOutputs, typename Weight>
inline void linear_rows(const LinearTask& task, std::size_t row, std::size_t begin, std::size_t end) {
  std::size_t output = begin;
  for (; output + kOutputs <= end; output += kOutputs) linear_tile<kRows, kOutputs, Weight>(task, row, output);
  for (; output < end; ++output) linear_tile<kRows, 1, Weight>(task, row, output);
}

// Registers for sums: 6 by 4 of 32, or 6 by 2 of 16. A single row is bound by memory, and takes one output at a time:
// weights are then read in the order in which they lie, which the processor foresees. Eight at a time are as many short
// streams, and half as fast where rows have 1024 BF16 weights.
constexpr std::size_t kRowsMax = 6;
constexpr int kOutputsWide = WEIGHTCAST_VECTOR_BYTES == 64 ? 4 : 2;
// Rows of so many stay in the second-level cache while the weights go by.
constexpr std::size_t kRowsBlock = 48;
constexpr std::size_t kOutputsBlock = 8;

template <typename Weight>
void linear(const LinearTask& task) {
  for (std::size_t first = 0; first < task.rows; first += kRowsBlock) {
    const std::size_t last = first + kRowsBlock < task.rows ? first + kRowsBlock : task.rows;
    for (std::size_t begin = task.output_begin; begin < task.output_end; begin += kOutputsBlock) {
      const std::size_t end = begin + kOutputsBlock < task.output_end ? begin + kOutputsBlock : task.output_end;
      std::size_t row = first;
      for (; row + kRowsMax <= last; row += kRowsMax) {
        linear_rows<static_cast<int>(kRowsMax), kOutputsWide, Weight>(task, row, begin, end);
      }
      switch (last - row) {
        case 5: linear_rows<5, kOutputsWide, Weight>(task, row, begin, end); break;
        case 4: linear_rows<4, kOutputsWide, Weight>(task, row, begin, end); break;
        case 3: linear_rows<3, kOutputsWide, Weight>(task, row, begin, end); break;
        case 2: linear_rows<2, kOutputsWide, Weight>(task, row, begin, end); break;
        case 1: linear_rows<1, 1, Weight>(task, row, begin, end); break;
        default: break;
      }
    }
  }
}

void rms_norm(float* out, const float* x, const float* weight, std::size_t size, float epsilon) {
  Floats squares = {};
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Floats v = load(x + i);
    squares += v * v;
  }
  if (i < size) {
    const Floats v = load_some(x + i, size - i);
    squares += v * v;
  }
  const float scale = 1.0F / __builtin_sqrtf(sum_of(squares) / static_cast<float>(size) + epsilon);
  i = 0;
  for (; i + kLanes <= size; i += kLanes) store(out + i, load(x + i) * all(scale) * load(weight + i));
  for (; i < size; ++i) out[i] = x[i] * scale * weight[i];
}

inline Floats swiglu_of(Floats gate, Floats up) { return gate / (all(1.0F) + exp_of(-gate)) * up; }

void swiglu(float* gate, const float* up, std::size_t size) {
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) store(gate + i, swiglu_of(load(gate + i), load(up + i)));
  if (i == size) return;
  const Floats rest = swiglu_of(load_some(gate + i, size - i), load_some(up + i, size - i));
  for (std::size_t j = 0; i < size; ++i, ++j) gate[i] = rest[j];
}

float greatest(const float* values, std::size_t size) {
  Floats most = all(values[0]);
  Ints unordered = {};
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Floats v = load(values + i);
    most = greater_of(v, most);
    unordered |= v != v;
  }
  float result = values[0];
  bool is_nan = false;
  for (std::size_t j = 0; j < kLanes; ++j) {
    result = most[j] > result ? most[j] : result;
    is_nan = is_nan || unordered[j] != 0;
  }
  for (; i < size; ++i) {
    result = values[i] > result ? values[i] : result;
    is_nan = is_nan || values[i] != values[i];
  }
  return is_nan ? __builtin_nanf("") : result;
}

float exponentials(float* values, std::size_t size, float zero, float scale) {
  Floats sums = {};
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Floats e = exp_of((load(values + i) - all(zero)) * all(scale));
    store(values + i, e);
    sums += e;
  }
  float sum = sum_of(sums);
  if (i == size) return sum;
  const Floats rest = exp_of((load_some(values + i, size - i) - all(zero)) * all(scale));
  for (std::size_t j = 0; i < size; ++i, ++j) {
    values[i] = rest[j];
    sum += rest[j];
  }
  return sum;
}

template <int kVectors, typename Element>
inline void add_weighted_part(float* out, const float* weights, const Element* rows, std::size_t count,
                              std::size_t stride) {
  Floats sums[kVectors];
  for (int j = 0; j < kVectors; ++j) sums[j] = load(out + static_cast<std::size_t>(j) * kLanes);
  for (std::size_t i = 0; i < count; ++i) {
    const Floats weight = all(weights[i]);
    for (int j = 0; j < kVectors; ++j) {
      sums[j] += weight * load(rows + i * stride + static_cast<std::size_t>(j) * kLanes);
    }
  }
  for (int j = 0; j < kVectors; ++j) store(out + static_cast<std::size_t>(j) * kLanes, sums[j]);
}

template <typename Element>
void add_weighted(float* out, const float* weights, const void* memory, std::size_t count, std::size_t size) {
  const auto* rows = static_cast<const Element*>(memory);
  std::size_t k = 0;
  for (; k + 8 * kLanes <= size; k += 8 * kLanes) add_weighted_part<8>(out + k, weights, rows + k, count, size);
  for (; k + kLanes <= size; k += kLanes) add_weighted_part<1>(out + k, weights, rows + k, count, size);
  if (k == size) return;
  Floats sums = load_some(out + k, size - k);
  for (std::size_t i = 0; i < count; ++i) sums += all(weights[i]) * load_some(rows + i * size + k, size - k);
  for (std::size_t j = 0; k < size; ++k, ++j) out[k] = sums[j];
}

void add_scaled(float* out, const float* x, std::size_t size, float scale) {
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) store(out + i, load(out + i) + all(scale) * load(x + i));
  for (; i < size; ++i) out[i] += scale * x[i];
}

/// To the nearest, ties to even; NaN stays one.
void to_bfloat16(std::uint16_t* out, const float* x, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint32_t bits = bits_of(x[i]);
    const std::uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    out[i] = static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : nearest);
  }
}

void from_bfloat16(float* out, const std::uint16_t* x, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out[i] = float_of(static_cast<std::uint32_t>(x[i]) << 16);
}

constexpr Kernels kernels_of_this_file(const char* name) {
  return {name,       linear<float>, linear<std::uint16_t>, linear<std::uint16_t>, rms_norm,
          swiglu,     greatest,      exponentials,          add_weighted<float>,   add_weighted<std::uint16_t>,
          add_scaled, to_bfloat16,   from_bfloat16};
}

}  // namespace
}  // namespace weightcast::kernels
