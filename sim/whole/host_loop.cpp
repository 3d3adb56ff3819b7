#include "sim/whole/host_loop.h"

#include <algorithm>
#include <utility>

#include "base/result.h"
#include "sim/offloaded_job.h"

namespace weightcast::sim {
namespace {

// What a pool thread takes to begin, and to be heard of.
constexpr Duration kJobDelayMax = std::chrono::milliseconds(3);

}  // namespace

HostLoop::~HostLoop() { WC_CHECK(dependants() == 0); }

void HostLoop::at(Instant when, std::function<void()> task) {
  clock_.at(when, [alive = std::weak_ptr(alive_), task = std::move(task)] {
    if (!alive.expired()) task();
  });
}

std::shared_ptr<EventLoop::Job> HostLoop::offload(std::function<void()> work, std::function<void()> done) {
  auto job = std::make_shared<OffloadedJob>(std::move(work));
  const Instant begins = std::max(now(), stalled_until_) + random_.duration(Duration(1), kJobDelayMax);
  at(begins, [this, job, done = std::move(done)]() mutable {
    job->wait();
    at(now() + random_.duration(Duration(1), kJobDelayMax), std::move(done));
  });
  return job;
}

void HostLoop::handle_due_changed() {
  const std::optional<Instant> due = next_due();
  if (!due || (wakes_at_ && *wakes_at_ <= *due)) return;
  wakes_at_ = due;
  at(*due, [this, when = *due] {
    if (wakes_at_ != when) return;  // an earlier one came between
    wakes_at_.reset();
    run_due_timers();
    handle_due_changed();
  });
}

void HostLoop::handle_deferred() {
  if (std::exchange(deferred_soon_, true)) return;
  post([this] {
    deferred_soon_ = false;
    if (run_deferred()) handle_deferred();
  });
}

}  // namespace weightcast::sim
