#pragma once

#include <span>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/metrics/metrics.h"
#include "trainer/update/training_batch.h"

namespace weightcast {

/// Values of one sample's tokens that count in the loss, in their order. A token at position 0 has nothing before it
/// that could predict it, so it does not count.
using TokenValues = std::vector<float>;

/// Whether the token at `position` counts in the loss.
[[nodiscard]] inline bool counts(const Sample& sample, std::size_t position) {
  return position > 0 && sample.loss_mask[position] != 0;
}
/// How many do.
[[nodiscard]] std::size_t count_tokens(const Sample& sample);

/// What a step's policy says of its batch before the first update, by sample. Vectors that nobody reads are empty.
struct StepEstimates {
  std::vector<TokenValues> log_probs;
  std::vector<TokenValues> ref_log_probs;
  std::vector<TokenValues> values;  ///< of the value head
};

struct StepAdvantages {
  std::vector<TokenValues> advantages;
  std::vector<TokenValues> returns;  ///< what the value head is to learn; empty without one
  Metrics metrics;                   ///< critic/advantages, and critic/rewards where KL is taken off rewards
};

/// The advantages that the configuration's advantage_estimator gives the batch. KL in the reward (kl_reward_coef) reads
/// both kinds of log-probabilities: each token's reward loses coef * KL, and a group-relative advantage the sum over
/// the rollout. Errors: those of advantages() and gae().
[[nodiscard]] Result<StepAdvantages> step_advantages(const TrainingBatch& batch, const StepEstimates& estimates,
                                                     const LearnerConfig& config);

}  // namespace weightcast
