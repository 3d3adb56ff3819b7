#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "trainer/capacity/capacity.h"
#include "trainer/config/config.h"
#include "trainer/intake/worker_table.h"
#include "trainer/metrics/metrics.h"

namespace weightcast {

/// What a run measures of its own loop, from the rows that the learner's port keeps of its workers: metrics, and with
/// `provision` which workers are to roll out. Pure, as Capacity is.
class LoopMeter {
 public:
  explicit LoopMeter(const LearnerConfig& config);

  void handle_workers(Instant now, std::span<const IntakeWorker> workers);
  /// A step took `training`, and `waiting` for its rollouts before.
  void handle_step(Instant now, Duration training, Duration waiting) { capacity_.handle_step(now, training, waiting); }
  void handle_published(Instant now, Version version) { capacity_.handle_published(now, version); }
  /// Workers that from now on are to roll out, or are not; nothing without `provision`.
  [[nodiscard]] std::vector<std::pair<std::string, bool>> take_wanted();

  /// bubble_ratio; where there are workers workers/idle_share by perf/time_per_step, mu_min, mu_eff, bubble_predicted,
  /// workers/active, workers/alive, s_max_bound; where they tell their versions t_bcast.
  void set_metrics(Metrics& metrics) const;
  /// Seconds until 0.9 of the active workers generate under a version; absent until it is measured.
  [[nodiscard]] std::optional<double> t_bcast_s() const { return capacity_.figures().t_bcast_s; }
  /// Of the workers, since this meter was made.
  [[nodiscard]] double worker_cost() const { return capacity_.figures().cost_total; }

 private:
  Capacity capacity_;
  std::uint64_t rollouts_;  // of a step
  std::map<std::string, Instant> heard_;
};

}  // namespace weightcast
