#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "worker/rollout/rollout_scheduler.h"

namespace weightcast::bench {

/// Rollouts that an engine decodes together. They share its rate; `work` is in seconds of an engine of its own.
class SimulatedEngine {
 public:
  SimulatedEngine(double slowdown, double factor) : slowdown_(slowdown), factor_(factor) {}

  void begin(double now, const RolloutKey& rollout, double work) {
    advance(now);
    const double end = work_done_ + work;
    ends_[rollout] = end;
    order_.insert({end, rollout});
  }
  void stop(double now, const RolloutKey& rollout) {
    advance(now);
    const auto found = ends_.find(rollout);
    if (found == ends_.end()) return;
    order_.erase({found->second, rollout});
    ends_.erase(found);
  }
  void set_factor(double now, double factor) {
    advance(now);
    factor_ = factor;
  }
  /// Stands still, and goes on where it was.
  void set_paused(double now, bool is_paused) {
    advance(now);
    is_paused_ = is_paused;
  }
  /// When the next one ends, if nothing changes.
  [[nodiscard]] std::optional<std::pair<double, RolloutKey>> next() const {
    if (order_.empty() || is_paused_) return std::nullopt;
    const double left = std::max(0.0, order_.begin()->first - work_done_);
    return std::pair(at_ + left / rate(), order_.begin()->second);
  }

 private:
  [[nodiscard]] double rate() const {
    if (is_paused_) return 0;
    const double others = order_.empty() ? 0 : static_cast<double>(order_.size() - 1);
    return 1 / (factor_ * (1 + slowdown_ * others));
  }
  void advance(double now) {
    work_done_ += (now - at_) * rate();
    at_ = now;
  }

  double slowdown_, factor_;
  bool is_paused_ = false;
  double at_ = 0;
  double work_done_ = 0;
  std::map<RolloutKey, double> ends_;
  std::set<std::pair<double, RolloutKey>> order_;
};

}  // namespace weightcast::bench
