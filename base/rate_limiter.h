#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "base/units.h"

namespace weightcast {

/// Decides how many bytes may pass now. Bounds:
///   any second   at most 1.03 of the rate's share passes, and all of it if the caller always has bytes
///   any 10 ms    at most the rate's share plus 64 KiB passes
/// A token bucket keeps the average, and a sliding window of 10 ms keeps bursts short. A caller may wake late by the
/// time in which half of the slack passes (2.6 ms at 100 Mbit/s, 0.26 ms at 1 Gbit/s) and loses nothing. Pure: no
/// clock. One owner, one thread.
class RateLimiter {
 public:
  static constexpr Duration kWindow = std::chrono::milliseconds(10);
  static constexpr std::size_t kWindowSlackBytes = 64 * kKiB;

  /// A rate that is not limited() lets everything pass.
  explicit RateLimiter(Rate rate);

  [[nodiscard]] Rate rate() const { return rate_; }

  /// Bytes that may pass at `now`. `now` never goes back.
  [[nodiscard]] std::size_t available(Instant now);

  /// Records that `bytes` passed at `now`. The bounds above hold if `bytes` is at most available(now). Urgent bytes may
  /// exceed it; then nothing is available until the rate has made up for them.
  void consume(Instant now, std::size_t bytes);

  /// Takes back what consume(`at`, `bytes`) recorded: it has not passed. `at` is at most the time of the last call.
  void give_back(Instant at, std::size_t bytes);

  /// The earliest time at which `bytes` may pass, if nothing passes before. `now` if they may pass already. For more
  /// than quantum_bytes(), the time of the first quantum.
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
