#pragma once

#include <torch/types.h>

namespace weightcast {

// Products of matrices in the dtype of their operands, as at::linear() and at::matmul() give them. On a processor
// without AVX-512 LibTorch multiplies BF16 matrices one number at a time and in one thread, 40 times slower than FP32.
// There both operands are widened to FP32, in which products of BF16 numbers are exact, and the sums are rounded once
// at the end.

/// x weight^T + bias, differentiable. `x` is [..., in], `weight` [out, in], `bias` [out] or undefined.
[[nodiscard]] torch::Tensor linear_product(const torch::Tensor& x, const torch::Tensor& weight,
                                           const torch::Tensor& bias = {});

/// a b, as at::matmul(). For code that has a backward pass of its own: where it widens, not differentiable.
[[nodiscard]] torch::Tensor product(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace weightcast
