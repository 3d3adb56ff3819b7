#include "sim/host/sim_clock.h"

#include <algorithm>
#include <utility>

namespace weightcast::sim {
namespace {

// Any moment; far from the ends of the range.
constexpr UnixMillis kEpochUnixMs = 1'700'000'000'000;

}  // namespace

UnixMillis SimClock::unix_ms() const {
  return kEpochUnixMs + std::chrono::duration_cast<std::chrono::milliseconds>(now_.time_since_epoch()).count();
}

EventQueue& SimClock::share(std::function<void(const Event&)> handle) {
  handle_ = std::move(handle);
  return events_;
}

void SimClock::at(Instant when, std::function<void()> task) {
  if (free_tasks_.empty()) {
    free_tasks_.push_back(static_cast<std::uint32_t>(tasks_.size()));
    tasks_.emplace_back();
  }
  const std::uint32_t slot = free_tasks_.back();
  free_tasks_.pop_back();
  tasks_[slot] = std::move(task);
  events_.schedule(std::max(when, now_), EventKind::kTask, slot);
}

bool SimClock::run_one() {
  const std::optional<Event> event = events_.pop();
  if (!event) return false;
  now_ = std::max(now_, event->at);
  if (event->kind == EventKind::kTask) {
    const auto task = std::exchange(tasks_[event->a], nullptr);
    free_tasks_.push_back(event->a);
    task();
  } else {
    handle_(*event);
  }
  return true;
}

bool SimClock::run_until(const std::function<bool()>& holds, Duration limit) {
  const Instant end = now_ + limit;
  while (!holds()) {
    const std::optional<Instant> next = events_.next_at();
    if (!next || *next > end) return false;
    run_one();
  }
  return true;
}

}  // namespace weightcast::sim
