#pragma once

#include <torch/types.h>

#include <functional>

namespace weightcast {

// Differentiable functions of a decoder layer. Each keeps for the backward pass only what it needs; autograd would keep
// every intermediate result of the same formula.

/// x / sqrt(mean(x^2) + eps) * weight over the last dimension: in FP32, rounded to the dtype of `x` before the product
/// with `weight`, as in transformers.
[[nodiscard]] torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps);

/// silu(gate) * up.
[[nodiscard]] torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);

/// Rows of a tensor, each taken the same number of times, in another order.
struct RowOrder {
  /// Row i of the result is row `from[i]` of the source. Entries that no entry of `to` names are padding.
  torch::Tensor from;
  /// Source row r is at `to[r * copies]` to `to[r * copies + copies - 1]` of the result.
  torch::Tensor to;
  std::int64_t copies = 1;
};

/// Rows of `x` in that order. The gradient of padding is not used.
[[nodiscard]] torch::Tensor reorder(const torch::Tensor& x, const RowOrder& order);
/// What undoes reorder() where there is one copy of each row. With more it gives [rows * copies, ...].
[[nodiscard]] torch::Tensor restore(const torch::Tensor& x, const RowOrder& order);

/// `layer(x)`, of which only `x` is kept: the backward pass calls `layer` again. `layer` must give the same result each
/// time, and uses no tensors that require gradients but `x` and `parameters`.
[[nodiscard]] torch::Tensor recomputed(const std::function<torch::Tensor(const torch::Tensor&)>& layer,
                                       const torch::Tensor& x, const std::vector<torch::Tensor>& parameters);

}  // namespace weightcast
