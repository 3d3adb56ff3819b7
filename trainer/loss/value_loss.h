#pragma once

#include <torch/types.h>

#include "trainer/loss/aggregate.h"

namespace weightcast {

/// The head that estimates what is still to be earned, for gae(). A linear map; its weights are the caller's, to be
/// trained and kept as any parameter.
struct ValueHead {
  torch::Tensor weight;  ///< FP32 [D]
  torch::Tensor bias;    ///< FP32 []

  /// All zero: without training it says nothing, and the first advantages are plain returns. Both want gradients.
  [[nodiscard]] static ValueHead zeros(std::int64_t width, torch::Device device = torch::kCPU);
  /// FP32 [T] of hidden states [T, D] of any type.
  [[nodiscard]] torch::Tensor operator()(const torch::Tensor& hidden) const;
};

struct ValueLoss {
  torch::Tensor loss;           ///< without dimensions
  torch::Tensor clipped_share;  ///< of tokens, without gradient: vf_clipfrac
};

/// Half of the squared error against `returns`, clipped as PPO does: the larger one of the error of `values` and that
/// of `values` kept within `clip_range` of `old_values` (those that gae() had). All [B, T]; `mask` is bool. What stands
/// in slots outside the mask has no influence, NaN included. A negative `clip_range` is off. Errors: kInvalidArgument:
/// shapes differ.
[[nodiscard]] Result<ValueLoss> value_loss(const torch::Tensor& values, const torch::Tensor& old_values,
                                           const torch::Tensor& returns, const torch::Tensor& mask, double clip_range,
                                           LossAggMode mode, const LossCounts& counts = {});

}  // namespace weightcast
