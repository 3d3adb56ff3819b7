#include "trainer/intake/sync_coordinator.h"

#include <algorithm>

namespace weightcast {

void SyncCoordinator::handle_workers(Instant now, std::span<const IntakeWorker> workers) {
  if (target_ && !has_arrived_ && !wants_publication()) {
    has_arrived_ = true;
    sync_until_ = now + options_.sync_time_max;
  }
  const bool is_late = has_arrived_ && now >= sync_until_;
  infer_ = std::nullopt;
  for (const IntakeWorker& worker : workers) {
    const bool counts = worker.said.is_active && !worker.is_silent && worker.said.weights != kNoVersion;
    if (!counts || worker.said.weights >= published_.value_or(kNoVersion)) laggards_.erase(worker.name);
    if (!counts) continue;
    if (is_late && worker.said.weights < *target_) laggards_.insert(worker.name);
    if (laggards_.contains(worker.name)) continue;
    infer_ = infer_ ? std::min(*infer_, worker.said.weights) : worker.said.weights;
  }
  // Where nobody generates, the next one that does takes the version that is published.
  if (!infer_) infer_ = published_;
  if (has_arrived_ && (is_late || *infer_ >= *target_)) {
    target_.reset();
    has_arrived_ = false;
  }
}

void SyncCoordinator::handle_step(Version version) {
  learner_ = version;
  const bool is_new = !published_ || learner_ > *published_;
  if (!target_ && is_new && drift().value_or(0) > options_.drift_max) target_ = learner_;
}

std::optional<std::uint64_t> SyncCoordinator::drift() const {
  if (!infer_) return std::nullopt;
  return learner_ > *infer_ ? learner_.value - infer_->value : 0;
}

}  // namespace weightcast
