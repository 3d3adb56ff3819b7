#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "trainer/config/config.h"
#include "trainer/metrics/metrics.h"
#include "trainer/replay/replay_buffer.h"
#include "trainer/tasks/task.h"

namespace weightcast {

/// The rollouts of one training step as what the loss takes. Entry i of each vector belongs to rollout i.
struct TrainingBatch {
  std::vector<Sample> samples;
  std::vector<double> rewards;
  std::vector<std::size_t> group_ids;  ///< equal for rollouts whose rewards are compared
  std::vector<double> lags;            ///< training steps between the rollout's oldest token and the learner
  std::vector<std::uint64_t> response_lengths;
  std::size_t judged = 0;     ///< rollouts of which somebody has said whether they succeeded
  std::size_t succeeded = 0;  ///< of these

  [[nodiscard]] std::size_t size() const { return samples.size(); }
};

[[nodiscard]] TrainingBatch make_training_batch(const Task& task, const std::vector<RolloutGroup>& groups,
                                                Version learner);

/// Why the batch is unlikely to teach anything, for a person: all rewards are equal, and all responses were cut off. ""
/// of another batch.
[[nodiscard]] std::string batch_warning(const TrainingBatch& batch, std::uint64_t max_new_tokens);

/// rollouts/*: what came of all rollouts so far.
void set_rollout_metrics(Metrics& metrics, const ReplayStats& stats, std::uint64_t malformed);

/// The same as a line for a person: "rollouts: 96 admitted, 64 trained on, 0 malformed, ..., 3 refused (stale 3)".
[[nodiscard]] std::string rollout_summary(const ReplayStats& stats, std::uint64_t malformed);

/// critic/score, critic/success_rate, response_length and off_policy of the batch. The success rate is of the rollouts
/// of which it is known; absent if of none.
void set_batch_metrics(Metrics& metrics, const TrainingBatch& batch, std::uint64_t max_new_tokens);

}  // namespace weightcast
