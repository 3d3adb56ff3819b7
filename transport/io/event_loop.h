#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/time.h"

namespace weightcast {

class Timer;
class Deferred;

/// What a node's code runs on: time, turns, and threads for what blocks. UvLoop is the one of the daemon, sim::SimLoop
/// the simulator's. Everything that is made with a loop belongs to its thread; post() and now() alone are for any
/// thread. Timers and Deferreds go away before their loop.
class EventLoop {
 public:
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  virtual ~EventLoop();

  /// Monotonic, read afresh at each call. From any thread.
  [[nodiscard]] virtual Instant now() const = 0;
  /// The wall clock, for records that leave the host.
  [[nodiscard]] virtual UnixMillis unix_ms() const = 0;

  /// Runs `task` on the loop's thread, soon, never from inside this call. From any thread; tasks keep their order per
  /// thread.
  virtual void post(std::function<void()> task) = 0;

  /// Work that was handed to offload().
  class Job {
   public:
    virtual ~Job() = default;
    /// Blocks until the work has ended. `done` still follows, at a turn of the loop. Loop thread only.
    virtual void wait() = 0;
  };

  /// Runs `work` on a pool thread, then `done` on the loop's thread. There are few such threads
  /// (UV_THREADPOOL_SIZE, 4). The handle may be dropped.
  virtual std::shared_ptr<Job> offload(std::function<void()> work, std::function<void()> done) = 0;

  /// How many threads the work of one job may use, its own included. One in a simulation, where nothing runs at the
  /// same time as anything else.
  [[nodiscard]] virtual unsigned threads_per_job_max() const = 0;

 protected:
  EventLoop() = default;

  /// The earliest deadline of any timer.
  [[nodiscard]] std::optional<Instant> next_due() const;
  /// Runs the timers whose time has come, in the order of their deadlines. What they arm waits for the next call.
  void run_due_timers();
  /// next_due() is not what it was.
  virtual void handle_due_changed() = 0;

  /// Runs what was deferred, and again what that deferred, at most a few rounds. Whether something is left.
  bool run_deferred();
  /// Something was deferred: run_deferred() is wanted at the end of this turn.
  virtual void handle_deferred() = 0;
  /// Runs `task` as if somebody had deferred it.
  void defer(std::function<void()> task);

  /// Timers and Deferreds that exist.
  [[nodiscard]] std::size_t dependants() const { return dependants_; }

 private:
  friend class Timer;
  friend class Deferred;

  void arm(Timer& timer, Instant due);
  void disarm(Timer& timer);
  void remove(Timer& timer);
  void place(Timer* timer, std::size_t index);
  void sift_up(std::size_t index);
  void sift_down(std::size_t index);

  std::vector<Timer*> heap_;    // armed, the earliest first; a binary heap
  std::vector<Timer*> firing_;  // due, about to run; null where one went away
  std::uint64_t arms_ = 0;      // how often any timer was armed: the order of equal deadlines
  std::vector<Deferred*> scheduled_;
  std::vector<Deferred*> running_;  // null where one went away
  std::vector<std::function<void()>> tasks_;
  std::size_t dependants_ = 0;
};

/// One deadline. Arming costs no system call unless it becomes the loop's earliest.
class Timer {
 public:
  Timer(EventLoop& loop, std::function<void()> on_due);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Replaces any earlier deadline. A time that has passed is due at the next turn of the loop.
  void arm(Instant due);
  void disarm();
  [[nodiscard]] bool armed() const { return armed_; }

 private:
  friend class EventLoop;
  static constexpr std::size_t kNotInHeap = SIZE_MAX;

  EventLoop& loop_;
  // Shared with the loop while it runs, because the action may destroy this object.
  std::shared_ptr<const std::function<void()>> on_due_;
  bool armed_ = false;
  Instant due_{};
  std::uint64_t order_ = 0;
  std::size_t index_ = kNotInHeap;
};

/// An action that is put off to the end of the loop's present turn, when everything that was ready has been looked at:
/// many reasons to act become one act, and no caller finds itself called back from inside its own call.
class Deferred {
 public:
  Deferred(EventLoop& loop, std::function<void()> action);
  ~Deferred();
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  /// Harmless if it is scheduled already. Scheduled from inside an action, it waits for the next round.
  void schedule();

 private:
  friend class EventLoop;
  EventLoop& loop_;
  // Shared with the loop while it runs, because the action may destroy this object.
  std::shared_ptr<const std::function<void()>> action_;
  bool scheduled_ = false;
};

}  // namespace weightcast
