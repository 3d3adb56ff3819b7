#pragma once

#include <atomic>
#include <memory>

#include "base/result.h"
#include "trainer/loop/run_state.h"
#include "trainer/metrics/metrics.h"
#include "trainer/update/training_batch.h"

namespace weightcast {

/// Computes the training steps of a run.
class StepMaker {
 public:
  virtual ~StepMaker() = default;
  /// Makes the step after `RunState::step`, and returns what it measured. A pace ends early once `stop` is set.
  /// Errors: those of train_step() and of the process group.
  [[nodiscard]] virtual Result<Metrics> make_step(const TrainingBatch& batch, const std::atomic<bool>& stop) = 0;
};

/// The one that the run's configuration names: the policy's own, or with paced_step_s one that computes nothing and
/// takes as long. `run` must outlive it.
[[nodiscard]] std::unique_ptr<StepMaker> make_step_maker(RunState& run);

}  // namespace weightcast
