#include "sim/sim_loop.h"

#include <utility>

#include "base/result.h"
#include "sim/offloaded_job.h"

namespace weightcast::sim {
namespace {

// Any moment; far from the ends of the range.
constexpr UnixMillis kEpochUnixMs = 1'700'000'000'000;
// A pool thread's usual delay.
constexpr Duration kWorkDelayMax = std::chrono::milliseconds(3);

}  // namespace

SimLoop::~SimLoop() { WC_CHECK(dependants() == 0); }

UnixMillis SimLoop::unix_ms() const {
  return kEpochUnixMs + std::chrono::duration_cast<std::chrono::milliseconds>(now_.time_since_epoch()).count();
}

void SimLoop::at(Instant when, std::function<void()> task) {
  events_.emplace(std::pair(std::max(when, now_), order_++), std::move(task));
}

std::shared_ptr<EventLoop::Job> SimLoop::offload(std::function<void()> work, std::function<void()> done) {
  auto job = std::make_shared<OffloadedJob>(std::move(work));
  after_some_time(kWorkDelayMax, [this, job, done = std::move(done)]() mutable {
    job->wait();
    after_some_time(kWorkDelayMax, std::move(done));
  });
  return job;
}

bool SimLoop::run_one() {
  const std::optional<Instant> due = next_due();
  if (due && (events_.empty() || *due < events_.begin()->first.first)) {
    now_ = std::max(now_, *due);
    run_due_timers();
  } else if (!events_.empty()) {
    const auto event = events_.extract(events_.begin());
    now_ = std::max(now_, event.key().first);
    event.mapped()();
  } else if (!deferred_) {
    return false;
  }
  while (std::exchange(deferred_, false)) deferred_ = run_deferred();
  return true;
}

bool SimLoop::run_until(const std::function<bool()>& holds, Duration limit) {
  const Instant end = now_ + limit;
  while (!holds()) {
    const std::optional<Instant> due = next_due();
    const bool waits = (!due || *due > end) && (events_.empty() || events_.begin()->first.first > end);
    if ((waits && !deferred_) || !run_one()) return holds();
  }
  return true;
}

}  // namespace weightcast::sim
