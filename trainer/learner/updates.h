#pragma once

#include <span>
#include <vector>

#include "model/decoder.h"
#include "tasks/task.h"
#include "trainer/learner/config.h"
#include "trainer/learner/metrics.h"
#include "trainer/learner/policy.h"
#include "trainer/learner/training_batch.h"
#include "trainer/loss/policy_loss_options.h"

namespace weightcast {

/// Log-probabilities of one sample's tokens that count in the loss, in their order. A token at position 0 has nothing
/// before it that could predict it, so it does not count.
using TokenValues = std::vector<float>;

/// What the loss reads of each sample, in the samples' order. Vectors that it does not read are empty.
struct LossColumns {
  std::span<const Sample> samples;
  std::span<const double> advantages;
  std::span<const double> scores;
  std::vector<TokenValues> old_log_probs;
  std::vector<TokenValues> ref_log_probs;
  bool has_rollout_log_probs = false;  ///< those of the samples; else old_log_probs stand for them
};

/// One optimiser update: what it learns from, and how.
struct UpdateOptions {
  PolicyLossOptions loss;
  double temperature = 1;
  double learning_rate = 0;
  std::uint64_t micro_batch_tokens = 8192;
};

/// Without gradients, in packed micro-batches.
[[nodiscard]] std::vector<TokenValues> token_values(const Decoder& decoder, std::span<const Sample> samples,
                                                    double temperature, std::uint64_t micro_batch_tokens);

/// One update over `members` of the samples, whose gradients add up over micro-batches of bounded tokens. Metrics are
/// actor/*, rollout_corr/* of the loss, and actor/grad_norm, actor/lr.
/// Errors: those of policy_loss() and AdamW::update().
[[nodiscard]] Result<Metrics> update_once(Policy& policy, const LossColumns& columns,
                                          std::span<const std::size_t> members, const UpdateOptions& options);

/// A training step: updates_per_step updates over disjoint parts of the batch, ppo_epochs times. `step` is its number,
/// from 0 on. `reference` may be null if kl_loss_coef is 0. Returns the means of the updates' metrics.
[[nodiscard]] Result<Metrics> train_step(Policy& policy, const Decoder* reference, const TrainingBatch& batch,
                                         const LearnerConfig& config, std::uint64_t step);

}  // namespace weightcast
