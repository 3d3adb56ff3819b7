#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "base/settings/log_line.h"
#include "tools/observe/metrics_text.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"
#include "trainer/metrics/metrics.h"
#include "trainer/tasks/task.h"

namespace weightcast {

/// Where a run is between two training steps, for whoever follows it in the same process.
struct LearnerStep {
  std::uint64_t step = 0;             ///< training steps that are done
  std::vector<StoredTensor> weights;  ///< of the decoder that learns, or of its adapter: a copy
  Metrics metrics;                    ///< the step's line of metrics.jsonl; empty before the first one
  std::vector<double> lags;           ///< of the step's rollouts, as in TrainingBatch
};
/// Is told on the run's thread. Its error ends the run.
using StepObserver = std::function<Status(LearnerStep)>;

/// A run: supervised warm-up, then training steps, each of which collects rollouts, learns, publishes, and may evaluate
/// and write a checkpoint. Everything that it writes is in output_dir:
///   config.toml                 what it was started with last
///   metrics.jsonl               a line per training step
///   checkpoints/checkpoint-N/   the state after N steps, readable as a model's directory
/// A run in a directory that has a checkpoint goes on from there. On a CPU it comes to the same bits as one that was
/// never stopped. Versions: first_version + number of training steps. LibTorch is behind this header.
class Learner {
 public:
  /// What a person should know is written to stderr. `observer`, if there is one, is told before the first training
  /// step of this start and after each; not in a rank other than 0. `task`, if there is one, is learned instead of the
  /// one that the configuration names. Errors: kBusy (another process runs there); those of the configuration, the
  /// model, the task and the checkpoint.
  [[nodiscard]] static Result<std::unique_ptr<Learner>> make(FileSystem& files, const LearnerConfig& config,
                                                             StepObserver observer = {},
                                                             std::shared_ptr<const Task> task = {});
  virtual ~Learner() = default;

  /// Returns when all steps are done, or soon after `stop` was set; then a checkpoint is written. Also after an error,
  /// unless it left a training step half done.
  [[nodiscard]] virtual Status run(const std::atomic<bool>& stop) = 0;

  /// What Prometheus is told of the run (LearnerMetrics). Any thread, while run() goes on or not; does not wait for a
  /// training step. Nothing of a rank other than 0.
  virtual void add_metrics(MetricsText& /*text*/) const {}
};

}  // namespace weightcast
