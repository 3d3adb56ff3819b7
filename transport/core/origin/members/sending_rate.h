#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"
#include "base/units.h"

namespace weightcast {

/// The rate at which a node sends while it sends without a pause, by its own count of bytes. It looks at windows of
/// kWindow or more. What left in the first window, or began in it, may still wait in the kernel: the mean counts from
/// the end of the second. Pure. Invariant: best() is the greatest such mean since forget().
class SendingRate {
 public:
  static constexpr Duration kWindow = std::chrono::milliseconds(500);
  /// Nobody tells of it for longer than that: it paused.
  static constexpr Duration kGapMax = std::chrono::seconds(3);

  /// So many bytes have left since the start. Returns what left per second in a window that ends with this; nothing
  /// while it is not that long, and after a gap.
  std::optional<Rate> handle_sent(Instant now, std::uint64_t bytes_sent);
  [[nodiscard]] Rate best() const { return best_; }
  void forget() { best_ = Rate{}; }

 private:
  struct Count {
    Instant at{};
    std::uint64_t bytes = 0;
  };
  std::optional<Count> last_;   // where the last window ended
  unsigned windows_ = 0;        // with something sent, one after another
  std::optional<Count> since_;  // the mean counts from there on
  Rate best_{};
};

}  // namespace weightcast
