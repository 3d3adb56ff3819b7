#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "tools/observe/metrics_text.h"
#include "trainer/intake/worker_table.h"
#include "trainer/metrics/metrics.h"
#include "trainer/replay/replay_buffer.h"

namespace weightcast {

/// What a learner has at the time at which Prometheus asks.
struct LearnerNow {
  Version version{};                   ///< of its weights
  std::optional<Version> published{};  ///< the last version that the origin took; absent without an origin
  ReplayStats replay = {};
  std::uint64_t malformed = 0;  ///< RolloutSource::malformed()
  std::uint64_t buffered = 0;   ///< rollouts
  std::uint64_t buffered_bytes = 0;
  std::uint64_t under_way = 0;                            ///< rollouts that are leased
  std::optional<std::vector<IntakeWorker>> workers = {};  ///< absent if rollouts come from elsewhere
};

/// What a learner tells Prometheus: figures of its last training step, sums over the steps since its start, and what it
/// has now. As many lines for any number of workers and steps. docs/METRICS.md lists the names. Pure.
class LearnerMetrics {
 public:
  /// Upper ends of the staleness histogram's buckets, in training steps.
  static constexpr std::array<double, 10> kStalenessAtMost = {0, 1, 2, 3, 4, 6, 8, 12, 16, 32};

  /// `batch_rollouts`: of a training step.
  explicit LearnerMetrics(std::uint64_t batch_rollouts) : batch_rollouts_(batch_rollouts) {}

  /// A training step has ended, with these figures. `lags`: of its rollouts, in training steps (TrainingBatch).
  void handle_step(const Metrics& figures, std::span<const double> lags, double unix_s);
  void write(MetricsText& text, const LearnerNow& now) const;

 private:
  const std::uint64_t batch_rollouts_;
  Metrics last_;
  double ended_unix_s_ = 0;
  std::map<std::string, double, std::less<>> phase_s_;
  std::array<std::uint64_t, kStalenessAtMost.size()> staleness_{};  // per bucket
  std::uint64_t trained_rollouts_ = 0;
  double staleness_sum_ = 0;
  double trained_tokens_ = 0;
};

}  // namespace weightcast
