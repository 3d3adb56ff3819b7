#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "base/units.h"

namespace weightcast {

/// Decides how many bytes may pass now, so that
///   over any second, no more than 1.03 of the rate's share passes, and all of it if the caller always has bytes;
///   over any 10 ms, no more than the rate's share plus 64 KiB passes.
/// Two bounds make that robust against late timers: a token bucket keeps the average, and a sliding window of 10 ms
/// keeps the bursts short. A caller that wakes late by no more than what the rate takes for half of the slack (2.6 ms
/// at 100 Mbit/s, 0.26 ms at 1 Gbit/s) loses nothing.
/// Pure: no clock. One owner, one thread.
class RateLimiter {
 public:
  static constexpr Duration kWindow = std::chrono::milliseconds(10);
  static constexpr std::size_t kWindowSlackBytes = 64 * kKiB;

  /// A rate that is not limited() lets everything pass.
  explicit RateLimiter(Rate rate);

  [[nodiscard]] Rate rate() const { return rate_; }

  /// Bytes that may pass at `now`. `now` never goes back.
  [[nodiscard]] std::size_t available(Instant now);

  /// Records that `bytes` passed at `now`: at most available(now), for the bounds above to hold. What could not wait
  /// may exceed it; then nothing more is available until the rate has made up for it.
  void consume(Instant now, std::size_t bytes);

  /// The earliest time at which `bytes` may pass, if nothing passes before; `now` if they may already. `bytes` above
  /// quantum_bytes() wait for the quantum only.
  [[nodiscard]] Instant ready_at(Instant now, std::size_t bytes);

  /// A batch worth waking up for: about 2 ms of the rate.
  [[nodiscard]] std::size_t quantum_bytes() const { return quantum_bytes_; }

 private:
  static constexpr std::size_t kSlots = 1000;
  static constexpr Duration kSlot = kWindow / static_cast<std::int64_t>(kSlots);

  void advance(Instant now);

  Rate rate_;
  double capacity_bytes_ = 0;
  double window_bytes_max_ = 0;
  std::size_t quantum_bytes_ = 0;

  bool started_ = false;
  double tokens_ = 0;
  Instant refilled_at_{};
  std::int64_t slot_now_ = 0;
  std::size_t window_bytes_ = 0;
  // One slot more than the window holds: the oldest is only partly inside and is counted whole.
  std::array<std::uint32_t, kSlots + 1> slots_{};
};

}  // namespace weightcast
