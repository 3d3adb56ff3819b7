#pragma once

#include <algorithm>

#include "base/time.h"

namespace weightcast {

/// What a peer may ask for: `burst` at once, and `per_second` on average (a token bucket). Pure.
class Budget {
 public:
  constexpr Budget(double per_second, double burst) : per_second_(per_second), burst_(burst), left_(burst) {}

  /// Whether there is one left at `now`; then it is spent.
  [[nodiscard]] bool spend(Instant now) {
    if (now > at_) left_ = std::min(burst_, left_ + per_second_ * to_seconds(now - at_));
    at_ = std::max(at_, now);
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }

 private:
  double per_second_;
  double burst_;
  double left_;
  Instant at_{};
};

}  // namespace weightcast
