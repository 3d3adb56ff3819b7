#pragma once

// What AdamW does with a block of cells. One file per instruction set includes adamw_loops.h with that set's compiler
// flags. All give the same bits.

#include <cstddef>
#include <cstdint>

namespace weightcast {

/// The numbers of one update, the same for every cell of a parameter.
struct AdamWScalars {
  float gradient_scale;
  float decay;  // 1 - learning rate * weight decay
  float beta1, beta1_rest;
  float beta2, beta2_rest;
  float step_size;     // learning rate / (1 - beta1^t)
  float inverse_root;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
  std::uint64_t rounding_key;
};

enum class WeightCells { kFloat, kBf16Nearest, kBf16Stochastic };

struct AdamWBlock {
  float* master;
  float* moment1;
  float* moment2;
  const void* gradient;    // float, or the bits of BF16
  std::uint16_t* bf16;     // null if the weights are FP32
  std::uint64_t* changed;  // of `first` on; bits are only ever set
  std::size_t cells;
  std::uint32_t first;  // the tensor's number of the first cell, a multiple of 64
};

struct AdamWKernels {
  void (*update)(const AdamWBlock& block, const AdamWScalars& scalars, bool gradient_is_bf16, WeightCells weights);
  /// In double, in an order of its own: cell i goes to sum i % 16.
  double (*sum_of_squares)(const void* gradient, bool gradient_is_bf16, std::size_t cells);
};

[[nodiscard]] AdamWKernels adamw_kernels_plain();
#if defined(WEIGHTCAST_ADAMW_X86)
/// Only to be called where instruction_set() is kAvx2 at least.
[[nodiscard]] AdamWKernels adamw_kernels_avx2();
#endif
/// The best ones for instruction_set().
[[nodiscard]] const AdamWKernels& adamw_kernels();

}  // namespace weightcast
