#pragma once

#include <cstdint>
#include <deque>

#include "base/time.h"

namespace weightcast {

/// How often something may begin again: `most` times within `window`. Pure. Invariant: at most `most` times are kept.
class RestartLimit {
 public:
  RestartLimit(std::uint64_t most, Duration window) : most_(most), window_(window) {}

  /// Counts a beginning, and says whether it may be.
  [[nodiscard]] bool take(Instant now);
  /// Beginnings within the window before the last take().
  [[nodiscard]] std::uint64_t taken() const { return times_.size(); }

 private:
  std::uint64_t most_;
  Duration window_;
  std::deque<Instant> times_;
};

}  // namespace weightcast
