#pragma once

#include <torch/types.h>

#include <string_view>
#include <vector>

#include "trainer/loss/policy_loss_options.h"

namespace weightcast {

/// Of B sequences and T columns. What stands in slots that the mask leaves out has no influence, NaN included. A tensor
/// that is not given is undefined. All on one device; the matrices have the type of `log_probs`.
struct PolicyLossInput {
  torch::Tensor log_probs;          ///< [B, T]: of the sampled tokens under the policy that learns
  torch::Tensor old_log_probs;      ///< [B, T]: under the proximal policy, at the step's start
  torch::Tensor rollout_log_probs;  ///< [B, T]: under the policy that sampled; without them old_log_probs
  torch::Tensor ref_log_probs;      ///< [B, T]: under the reference; needed if kl_loss_coef is not 0
  torch::Tensor entropy;            ///< [B, T]: of the policy that learns; needed if entropy_coeff is not 0
  torch::Tensor advantages;         ///< [B, T]
  torch::Tensor response_mask;      ///< bool [B, T]; without it every slot counts
  torch::Tensor scores;             ///< [B]: topr and weighted_topr
};

struct PolicyLossMetric {
  std::string_view name;  ///< of the field, such as actor/pg_clipfrac
  torch::Tensor value;    ///< without dimensions and gradient, on the device
};

struct PolicyLoss {
  torch::Tensor loss;       ///< without dimensions: loss_agg_mode of `per_token`
  torch::Tensor per_token;  ///< [B, T]: policy, KL and entropy term together; 0 in slots that do not count
  /// Means divide by batch_tokens where that is set, so they add up over the parts of a batch. Exceptions: of
  /// rollout_corr/rollout_is_max the largest counts, and the effective sample size (a share of 1) is this part's.
  std::vector<PolicyLossMetric> metrics;
};

/// The loss to minimise; its gradient goes to `log_probs` and `entropy` alone. Without a slot that counts the loss is
/// 0. Errors: kInvalidArgument: an option out of range, an input that is missing, or one of another shape than
/// log_probs.
[[nodiscard]] Result<PolicyLoss> policy_loss(const PolicyLossOptions& options, const PolicyLossInput& input);

/// The estimate of the divergence per token, elementwise, with gradient.
[[nodiscard]] torch::Tensor kl_estimate(KlType type, const torch::Tensor& log_probs,
                                        const torch::Tensor& ref_log_probs);

/// KL in the reward instead of the loss: what to subtract from each token's reward, coef * KL, [B, T] without gradient,
/// 0 in slots that do not count. A group-relative advantage subtracts the row's sum from the sequence's reward.
[[nodiscard]] torch::Tensor kl_penalty(KlType type, double coef, const torch::Tensor& log_probs,
                                       const torch::Tensor& ref_log_probs, const torch::Tensor& response_mask);

}  // namespace weightcast
