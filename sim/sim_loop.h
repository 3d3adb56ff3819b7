#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/random.h"
#include "transport/io/event_loop.h"

namespace weightcast::sim {

/// An event loop without threads and without a clock. Time stands still while an event runs, and then jumps to the next
/// event. Off-loop work runs in one piece at a moment that the seed chooses, so the seed also chooses the order of
/// several jobs. One thread.
class SimLoop final : public EventLoop {
 public:
  explicit SimLoop(std::uint64_t seed) : random_(seed) {}
  ~SimLoop() override;

  [[nodiscard]] Instant now() const override { return now_; }
  [[nodiscard]] UnixMillis unix_ms() const override;
  void post(std::function<void()> task) override { at(now_, std::move(task)); }
  std::shared_ptr<Job> offload(std::function<void()> work, std::function<void()> done) override;
  [[nodiscard]] Duration processor_time() const override { return {}; }
  [[nodiscard]] unsigned threads_per_job_max() const override { return 1; }
  [[nodiscard]] unsigned jobs_at_once_max() const override { return 2; }

  /// Runs `task` at that time. Tasks of one time run in the order of these calls.
  void at(Instant when, std::function<void()> task);
  /// Runs `task` after a time that the seed chooses, at most `longest`.
  void after_some_time(Duration longest, std::function<void()> task) {
    at(now_ + random_.duration(Duration(1), longest), std::move(task));
  }

  /// Runs the earliest event, whatever its time. False if there is none, now or ever.
  bool run_one();
  /// Runs until `holds`, or until no event is left before `limit`. Whether it holds.
  bool run_until(const std::function<bool()>& holds, Duration limit = std::chrono::hours(1));

 protected:
  void handle_due_changed() override {}
  void handle_deferred() override { deferred_ = true; }

 private:
  Random random_;
  Instant now_{std::chrono::hours(1)};
  std::uint64_t order_ = 0;
  std::map<std::pair<Instant, std::uint64_t>, std::function<void()>> events_;
  bool deferred_ = false;
};

}  // namespace weightcast::sim
