#pragma once

#include <optional>
#include <span>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/loss/policy_loss_options.h"
#include "trainer/metrics/metrics.h"
#include "trainer/model/decoder.h"
#include "trainer/tasks/task.h"
#include "trainer/update/policy.h"
#include "trainer/update/step_advantages.h"
#include "trainer/update/training_batch.h"

namespace weightcast {

/// What the loss reads of each sample, in the samples' order. Vectors that it does not read are empty.
struct LossColumns {
  std::span<const Sample> samples;
  std::vector<TokenValues> advantages;  ///< of each token that counts, at least
  std::span<const double> scores;
  std::vector<TokenValues> old_log_probs;
  std::vector<TokenValues> ref_log_probs;
  std::vector<TokenValues> old_values;  ///< of the value head at the step's start, and what it is to learn
  std::vector<TokenValues> returns;
  bool has_rollout_log_probs = false;  ///< those of the samples; else old_log_probs stand for them
};

/// One optimiser update: what it learns from, and how.
struct UpdateOptions {
  PolicyLossOptions loss;
  double temperature = 1;
  double learning_rate = 0;
  std::uint64_t micro_batch_tokens = 8192;
  std::optional<std::uint64_t> dropout_seed;  ///< of the adapter, if it has a dropout
  double value_loss_coef = 0;                 ///< above 0 if the columns have returns
  double value_clip_range = 0;
  double value_learning_rate = 0;
};

// Of a policy with a process group all ranks call these functions together, with the same arguments. Each takes a share
// of the samples, and all get the same result.

struct TokenEstimates {
  std::vector<TokenValues> log_probs;
  std::vector<TokenValues> values;  ///< of the head, if there is one
};
/// Without gradients, in packed micro-batches, in this process alone. `head` may be null.
[[nodiscard]] TokenEstimates token_estimates(const Decoder& decoder, const ValueHead* head,
                                             std::span<const Sample> samples, double temperature,
                                             std::uint64_t micro_batch_tokens);

/// One update of the warm-up, from right answers: a policy loss in which each has an advantage of 1. `update` is its
/// number. Errors: those of update_once().
[[nodiscard]] Result<Metrics> warm_up_update(Policy& policy, std::span<const Sample> samples,
                                             const LearnerConfig& config, std::uint64_t update);

/// One update over `members` of the samples, whose gradients add up over micro-batches of bounded tokens. Metrics are
/// actor/*, rollout_corr/* of the loss, actor/grad_norm, actor/lr, and critic/* of the value head.
/// Errors: those of policy_loss(), value_loss() and AdamW::update().
[[nodiscard]] Result<Metrics> update_once(Policy& policy, const LossColumns& columns,
                                          std::span<const std::size_t> members, const UpdateOptions& options);

/// A training step: updates_per_step updates over disjoint parts of the batch, ppo_epochs times. `step` is its number,
/// from 0 on. `reference` may be null if reads_reference() is false. Returns the means of the updates' metrics.
[[nodiscard]] Result<Metrics> train_step(Policy& policy, const Decoder* reference, const TrainingBatch& batch,
                                         const LearnerConfig& config, std::uint64_t step);

}  // namespace weightcast
