#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "sim/random.h"
#include "transport/io/event_loop.h"

namespace weightcast::sim {

/// An event loop without threads and without a clock: time stands still while something runs, and jumps to the next
/// event after it. Off-loop work runs in one piece, at a moment between its offload() and its end that the seed
/// chooses; what several jobs do is thus in an order that the seed chooses. Everything on one thread.
class SimLoop final : public EventLoop {
 public:
  explicit SimLoop(std::uint64_t seed) : random_(seed) {}
  ~SimLoop() override;

  [[nodiscard]] Instant now() const override { return now_; }
  [[nodiscard]] UnixMillis unix_ms() const override;
  void post(std::function<void()> task) override { at(now_, std::move(task)); }
  std::shared_ptr<Job> offload(std::function<void()> work, std::function<void()> done) override;
  [[nodiscard]] unsigned threads_per_job_max() const override { return 1; }

  /// Runs `task` at that time; of several at one time in the order in which they were given.
  void at(Instant when, std::function<void()> task);
  /// The same some time from now that the seed chooses, at most `longest`.
  void after_some_time(Duration longest, std::function<void()> task) {
    at(now_ + random_.duration(Duration(1), longest), std::move(task));
  }

  /// Runs the earliest event, whatever its time. False if there is none: nothing will ever happen again.
  bool run_one();
  /// Runs until `holds`, or until nothing is left to happen before `limit`. Whether it holds.
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
