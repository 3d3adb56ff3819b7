#pragma once

// The inner loops of the decoder on a processor. One file per instruction set includes loops.h with that set's compiler
// flags. Instruction sets differ in the order of sums, so in the last bits.
//
// Batch invariance: an element of a result is one chain of sums over its row's own inputs, in an order that the size
// of the row alone decides. How many rows or outputs a call has changes nothing in any of them.

#include <cstddef>
#include <cstdint>
#include <span>

namespace weightcast::kernels {

/// Part of a product of a matrix with rows: y[row][output] = sum over k of x[row][k] * weight[output][k], plus
/// bias[output]. Strides are in elements.
struct LinearTask {
  const float* x = nullptr;
  std::size_t rows = 0;
  std::size_t x_stride = 0;
  const void* weight = nullptr;  ///< floats, or the bits of BF16; `size` to a row
  std::size_t weight_stride = 0;
  std::size_t size = 0;
  const float* bias = nullptr;  ///< null: none
  std::size_t output_begin = 0;
  std::size_t output_end = 0;
  float* y = nullptr;
  std::size_t y_stride = 0;
};

struct Kernels {
  const char* name;
  void (*linear_float)(const LinearTask& task);
  void (*linear_bfloat16)(const LinearTask& task);
  /// The same for few rows and outputs: scores of a block of keys.
  void (*scores_bfloat16)(const LinearTask& task);
  /// out = x / sqrt(mean(x^2) + epsilon) * weight. `out` may be `x`.
  void (*rms_norm)(float* out, const float* x, const float* weight, std::size_t size, float epsilon);
  /// gate = silu(gate) * up.
  void (*swiglu)(float* gate, const float* up, std::size_t size);
  /// NaN if one of them is.
  float (*greatest)(const float* values, std::size_t size);
  /// values = exp(scale * (values - zero)); gives their sum.
  float (*exponentials)(float* values, std::size_t size, float zero, float scale);
  /// out += weight[i] * rows[i] over `count` rows of `size` elements that lie one after the other.
  void (*add_weighted_float)(float* out, const float* weights, const void* rows, std::size_t count, std::size_t size);
  void (*add_weighted_bfloat16)(float* out, const float* weights, const void* rows, std::size_t count,
                                std::size_t size);
  /// out += scale * x.
  void (*add_scaled)(float* out, const float* x, std::size_t size, float scale);
  void (*to_bfloat16)(std::uint16_t* out, const float* x, std::size_t size);
  void (*from_bfloat16)(float* out, const std::uint16_t* x, std::size_t size);
};

[[nodiscard]] const Kernels& plain();
#if defined(WEIGHTCAST_ENGINE_X86)
/// Only to be used where instruction_set() is kAvx2 at least; kAvx512.
[[nodiscard]] const Kernels& avx2();
[[nodiscard]] const Kernels& avx512();
/// AVX-512, and AMX for products with BF16 weights: rows are split into two numbers of BF16, which keeps 16 bits of
/// each. Only after allow_amx(), where instruction_set() is kAmx.
[[nodiscard]] const Kernels& amx();
/// Asks the kernel for the registers, for the whole process. False where it has none to give.
[[nodiscard]] bool allow_amx();
#endif
/// Those for instruction_set() and the sets before it, plain first.
[[nodiscard]] std::span<const Kernels* const> available();
/// The last of them, which are the fastest.
[[nodiscard]] const Kernels& best();

}  // namespace weightcast::kernels
