#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "sim/event_queue.h"

namespace weightcast::sim {

/// The time of all hosts of a simulation, and what is to happen. Time stands still while an event runs, and then jumps
/// to the next one. One thread.
class SimClock {
 public:
  static constexpr Instant kStart{std::chrono::hours(1)};

  explicit SimClock(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] Instant now() const { return now_; }
  [[nodiscard]] UnixMillis unix_ms() const;
  /// The queue, for events of other kinds than kTask: `handle` gets these.
  [[nodiscard]] EventQueue& share(std::function<void(const Event&)> handle);

  /// Runs `task` at that time. Tasks of one time run in the order of these calls.
  void at(Instant when, std::function<void()> task);
  /// A time that the seed chooses, at most `longest`.
  [[nodiscard]] Duration some_time(Duration longest) { return random_.duration(Duration(1), longest); }

  /// Runs the earliest event, whatever its time. False if there is none, now or ever.
  bool run_one();
  /// Runs until `holds`, or until no event is left before `limit`. Whether it holds.
  bool run_until(const std::function<bool()>& holds, Duration limit = std::chrono::hours(1));

 private:
  Random random_;
  Instant now_ = kStart;
  EventQueue events_;
  std::function<void(const Event&)> handle_;
  std::vector<std::function<void()>> tasks_;
  std::vector<std::uint32_t> free_tasks_;
};

}  // namespace weightcast::sim
