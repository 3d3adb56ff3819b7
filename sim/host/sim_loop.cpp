#include "sim/host/sim_loop.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace weightcast::sim {
namespace {

// What a pool thread takes to begin, and to be heard of.
constexpr Duration kJobDelayMax = std::chrono::milliseconds(3);

/// Runs its work once: when its time comes, or when somebody waits for it before.
class OffloadedJob final : public EventLoop::Job {
 public:
  explicit OffloadedJob(std::function<void()> work) : work_(std::move(work)) {}
  void wait() override {
    if (const auto work = std::exchange(work_, nullptr)) work();
  }

 private:
  std::function<void()> work_;
};

}  // namespace

SimLoop::~SimLoop() { WC_CHECK(dependants() == 0); }

void SimLoop::at(Instant when, std::function<void()> task) {
  clock_.at(when, [alive = std::weak_ptr(alive_), task = std::move(task)] {
    if (!alive.expired()) task();
  });
}

std::shared_ptr<EventLoop::Job> SimLoop::offload(std::function<void()> work, std::function<void()> done) {
  auto job = std::make_shared<OffloadedJob>(std::move(work));
  at(std::max(now(), stalled_until_) + clock_.some_time(kJobDelayMax), [this, job, done = std::move(done)]() mutable {
    job->wait();
    at(now() + clock_.some_time(kJobDelayMax), std::move(done));
  });
  return job;
}

void SimLoop::handle_due_changed() {
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

void SimLoop::handle_deferred() {
  if (std::exchange(deferred_soon_, true)) return;
  post([this] {
    deferred_soon_ = false;
    if (run_deferred()) handle_deferred();
  });
}

}  // namespace weightcast::sim
