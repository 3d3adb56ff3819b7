#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/ids.h"
#include "base/time.h"
#include "tools/observe/metrics_text.h"
#include "worker/engine/engine_metrics.h"
#include "worker/learner/learner_client.h"
#include "worker/loop/rollout_loop.h"

namespace weightcast {

/// For what a worker that has nothing to do waits.
enum class IdleFor : std::uint8_t {
  kVersion,       ///< the first one
  kLearner,       ///< to be wanted, or for groups
  kRoom,          ///< so many rollouts wait for the learner
  kEnvironments,  ///< for turns of episodes, rewards, or a server's answers
};

/// What `weightcast-engine run` is at.
struct WorkerFigures {
  Version version{};
  bool is_wanted = true;
  bool has_engine = false;  ///< of its own: RolloutLoopStats::engine counts
  std::uint64_t answering = 0;
  std::uint64_t under_way = 0;  ///< rollouts
  std::uint64_t sent = 0;       ///< since it began
  RolloutLoopStats loop = {};
  LearnerClientStats learner = {};
  Installs installs = {};
  std::array<Duration, 4> idle{};  ///< by IdleFor, since it began
};

/// What a worker's loop tells Prometheus. Any thread.
class WorkerMetrics {
 public:
  void set(WorkerFigures figures) {
    const std::scoped_lock lock(mutex_);
    figures_ = std::move(figures);
  }
  void write(MetricsText& text) const;

 private:
  mutable std::mutex mutex_;
  WorkerFigures figures_;  // guarded
};

}  // namespace weightcast
