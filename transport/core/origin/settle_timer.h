#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/time.h"
#include "transport/core/origin/members/membership.h"

namespace weightcast {

/// When plans are fitted to the members. What changes a plan is only noted until then: so each is repaired once,
/// however many members were lost or joined. Pure.
class SettleTimer {
 public:
  /// It outlives this.
  explicit SettleTimer(const Membership& members) : members_(members) {}

  /// Something is to be settled: at once, or so long after the last time that a fleet which is in motion leaves the
  /// loop time for other things.
  void note_change(Instant now) {
    const auto members = static_cast<std::int64_t>(members_.connected_count());
    const Instant earliest = settled_at_ ? *settled_at_ + kPerMember * members : now;
    if (!due_) due_ = std::max(now, earliest);
  }
  void handle_settled(Instant now) {
    due_.reset();
    settled_at_ = now;
  }
  [[nodiscard]] std::optional<Instant> due() const { return due_; }

 private:
  /// Repairing a plan and telling those whom it concerns takes some 2 us for each member of it: so a fleet in which
  /// somebody comes or goes all the time takes a third of a core at most.
  static constexpr Duration kPerMember = std::chrono::microseconds(5);

  const Membership& members_;
  std::optional<Instant> due_;
  std::optional<Instant> settled_at_;
};

}  // namespace weightcast
