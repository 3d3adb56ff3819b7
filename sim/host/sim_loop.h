#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "sim/host/sim_clock.h"
#include "transport/io/event_loop.h"

namespace weightcast::sim {

/// The event loop of one simulated process, on the clock that all processes share. Off-loop work runs in one piece, at
/// a moment that the seed chooses, so the seed also chooses the order of several jobs. Destroying the loop ends the
/// process: tasks that have not run never will.
class SimLoop final : public EventLoop {
 public:
  explicit SimLoop(SimClock& clock) : clock_(clock) {}
  ~SimLoop() override;

  [[nodiscard]] Instant now() const override { return clock_.now(); }
  [[nodiscard]] UnixMillis unix_ms() const override { return clock_.unix_ms(); }
  void post(std::function<void()> task) override { at(now(), std::move(task)); }
  std::shared_ptr<Job> offload(std::function<void()> work, std::function<void()> done) override;
  [[nodiscard]] Duration processor_time() const override { return {}; }
  [[nodiscard]] unsigned threads_per_job_max() const override { return 1; }
  [[nodiscard]] unsigned jobs_at_once_max() const override { return 2; }

  /// Runs `task` at that time, unless the process has ended by then.
  void at(Instant when, std::function<void()> task);
  /// No off-loop work runs before that time, because it would wait for a disk that does not answer.
  void stall_until(Instant when) { stalled_until_ = when; }

 protected:
  void handle_due_changed() override;
  void handle_deferred() override;

 private:
  SimClock& clock_;
  Instant stalled_until_{};
  std::optional<Instant> wakes_at_;  // for the timers
  bool deferred_soon_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // expires with the process
};

}  // namespace weightcast::sim
