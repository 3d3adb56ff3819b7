#pragma once

#include <atomic>
#include <memory>

#include "base/file_system.h"
#include "base/log_line.h"
#include "base/result.h"
#include "observe/metrics_text.h"
#include "trainer/learner/config.h"

namespace weightcast {

/// A run: supervised warm-up, then training steps, each of which collects rollouts, learns, publishes, and may evaluate
/// and write a checkpoint. Everything that it writes is in output_dir:
///   config.toml                 what it was started with last
///   metrics.jsonl               a line per training step
///   checkpoints/checkpoint-N/   the state after N steps, readable as a model's directory
/// A run in a directory that has a checkpoint goes on from there. On a CPU it comes to the same bits as one that was
/// never stopped. Versions: first_version + number of training steps. LibTorch is behind this header.
class Learner {
 public:
  /// What a person should know is written to stderr. Errors: kBusy (another process runs there); those
  /// of the configuration, the model, the task and the checkpoint.
  [[nodiscard]] static Result<std::unique_ptr<Learner>> make(FileSystem& files, const LearnerConfig& config);
  virtual ~Learner() = default;

  /// Returns when all steps are done, or soon after `stop` was set; then a checkpoint is written. Also after an error,
  /// unless it left a training step half done.
  [[nodiscard]] virtual Status run(const std::atomic<bool>& stop) = 0;

  /// What Prometheus is told of the run (LearnerMetrics). Any thread, while run() goes on or not; does not wait for a
  /// training step. Nothing of a rank other than 0.
  virtual void add_metrics(MetricsText& /*text*/) const {}
};

}  // namespace weightcast
