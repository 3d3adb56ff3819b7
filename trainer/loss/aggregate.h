#pragma once

#include <torch/types.h>

#include "trainer/loss/policy_loss_options.h"

namespace weightcast {

/// What a batch's losses are divided by; see PolicyLossOptions.
struct LossCounts {
  std::optional<double> batch_tokens = {};
  std::optional<double> batch_sequences = {};
  std::optional<double> horizon = {};
};

/// Makes one number of what the tokens of [B, T] contribute. Only slots in the mask count; whoever calls sees to it
/// that nothing else is NaN.
class LossAggregate {
 public:
  /// `mask` is bool [B, T]; results have the type `type`.
  LossAggregate(const torch::Tensor& mask, torch::ScalarType type, LossAggMode mode, const LossCounts& counts);

  [[nodiscard]] torch::Tensor operator()(const torch::Tensor& values) const;
  /// Over the tokens that count, whatever the mode.
  [[nodiscard]] torch::Tensor token_mean(const torch::Tensor& values) const;
  /// 1 in slots that count, 0 elsewhere.
  [[nodiscard]] const torch::Tensor& weights() const { return weights_; }

 private:
  torch::Tensor weights_, tokens_, sequences_, tokens_of_;
  LossAggMode mode_;
  double horizon_;
};

}  // namespace weightcast
