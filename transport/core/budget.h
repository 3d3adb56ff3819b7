#pragma once

#include <algorithm>

#include "base/time.h"

namespace weightcast {

/// What a peer may ask for: `burst` at once, and `per_second` on average (a token bucket). Pure.
class Budget {
 public:
  constexpr Budget(double per_second, double burst) : per_second_(per_second), burst_(burst), left_(burst) {}

  /// Whether there is one left at `now`; then it is spent.
  [[nodiscard]] bool spend(Instant now) { return spend(now, 1); }
  /// Whether there is that much left at `now`; then it is spent.
  [[nodiscard]] bool spend(Instant now, double amount) {
    fill(now);
    if (left_ < amount) return false;
    left_ -= amount;
    return true;
  }
  /// What has been used already, whether or not it was left. At most `debt_max` is owed afterwards.
  void charge(Instant now, double amount, double debt_max) {
    fill(now);
    left_ = std::max(left_ - amount, -debt_max);
  }
  /// Whether nothing of the burst is used at `now`.
  [[nodiscard]] bool is_full(Instant now) {
    fill(now);
    return left_ >= burst_;
  }
  /// How long until nothing is owed.
  [[nodiscard]] Duration owed(Instant now) {
    fill(now);
    return left_ >= 0 ? Duration::zero() : from_seconds(-left_ / per_second_);
  }

 private:
  void fill(Instant now) {
    if (now > at_) left_ = std::min(burst_, left_ + per_second_ * to_seconds(now - at_));
    at_ = std::max(at_, now);
  }

  double per_second_;
  double burst_;
  double left_;
  Instant at_{};
};

}  // namespace weightcast
