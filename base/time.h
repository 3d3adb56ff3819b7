#pragma once

#include <chrono>
#include <cstdint>

namespace weightcast {

/// A span of time, in nanoseconds.
using Duration = std::chrono::nanoseconds;

/// A tag clock. The driver of the code (event loop, simulator, test) passes each Instant in. The core reads no clock,
/// so there is no now().
struct DrivenClock {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = Duration;
  using time_point = std::chrono::time_point<DrivenClock>;
  static constexpr bool is_steady = true;
};

/// A point in monotonic time; only differences mean something.
using Instant = DrivenClock::time_point;

/// Milliseconds since the Unix epoch, for records that leave the host.
using UnixMillis = std::int64_t;

[[nodiscard]] constexpr double to_seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

/// `seconds` as a Duration, limited to thirty years either way, so that it can be added to any Instant. NaN gives 0.
[[nodiscard]] constexpr Duration from_seconds(double seconds) {
  constexpr double kMax = 1e9;
  if (seconds != seconds) return Duration::zero();
  const double bounded = seconds > kMax ? kMax : seconds < -kMax ? -kMax : seconds;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(bounded));
}

}  // namespace weightcast
