#include "trainer/loss/aggregate.h"

namespace weightcast {

using torch::Tensor;

LossAggregate::LossAggregate(const Tensor& mask, torch::ScalarType type, LossAggMode mode, const LossCounts& counts)
    : weights_(mask.to(type)), mode_(mode), horizon_(counts.horizon.value_or(static_cast<double>(mask.size(-1)))) {
  const Tensor tokens_of = weights_.sum(-1);
  const auto or_counted = [&](std::optional<double> given, const Tensor& counted) {
    return given ? torch::full({}, *given, weights_.options()) : counted.clamp_min(1);
  };
  // Where there is no token, any denominator will do: there is nothing to divide.
  tokens_ = or_counted(counts.batch_tokens, tokens_of.sum());
  sequences_ = or_counted(counts.batch_sequences, (tokens_of > 0).sum().to(type));
  tokens_of_ = tokens_of.clamp_min(1);
}

Tensor LossAggregate::token_mean(const Tensor& values) const { return (values * weights_).sum() / tokens_; }

Tensor LossAggregate::operator()(const Tensor& values) const {
  const Tensor counted = values * weights_;
  switch (mode_) {
    case LossAggMode::kTokenMean: return counted.sum() / tokens_;
    case LossAggMode::kSeqMeanTokenSum: return counted.sum() / sequences_;
    case LossAggMode::kSeqMeanTokenMean: return (counted.sum(-1) / tokens_of_).sum() / sequences_;
    case LossAggMode::kSeqMeanTokenSumNorm: return counted.sum() / sequences_ / horizon_;
  }
  WC_CHECK(false);
}

}  // namespace weightcast
