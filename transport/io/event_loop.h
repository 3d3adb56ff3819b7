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

/// Time, turns and worker threads for a node's code. The daemon has a UvLoop, the simulator a sim::SimLoop. All objects
/// that use a loop belong to its thread; any thread may call post() and now(). Timers and Deferreds are destroyed
/// before their loop.
class EventLoop {
 public:
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  virtual ~EventLoop();

  /// Monotonic time, read at each call. Any thread.
  [[nodiscard]] virtual Instant now() const = 0;
  /// The wall clock, for records that leave the host.
  [[nodiscard]] virtual UnixMillis unix_ms() const = 0;

  /// That the loop's thread has used. In a simulation all takes no time. Loop thread only.
  [[nodiscard]] virtual Duration processor_time() const = 0;

  /// Runs `task` on the loop's thread, soon, never from inside this call. Any thread. The tasks of one thread keep
  /// their order.
  virtual void post(std::function<void()> task) = 0;

  /// Work that was given to offload().
  class Job {
   public:
    virtual ~Job() = default;
    /// Blocks until the work has ended. `done` still follows, in a later turn of the loop. Loop thread only.
    virtual void wait() = 0;
  };

  /// Runs `work` on a pool thread, then `done` on the loop's thread. The pool has few threads: two more than
  /// jobs_at_once_max(). The caller may drop the handle.
  virtual std::shared_ptr<Job> offload(std::function<void()> work, std::function<void()> done) = 0;

  /// How many threads the work of one job may use, its own included. One in a simulation, which runs one thing at a
  /// time.
  [[nodiscard]] virtual unsigned threads_per_job_max() const = 0;
  /// How many jobs may share one piece of work: then each has one thread. The pool's other two serve everybody else.
  [[nodiscard]] virtual unsigned jobs_at_once_max() const = 0;

 protected:
  EventLoop() = default;

  /// The earliest deadline of any timer.
  [[nodiscard]] std::optional<Instant> next_due() const;
  /// Runs the due timers in the order of their deadlines. Timers that they arm wait for the next call.
  void run_due_timers();
  /// next_due() has changed.
  virtual void handle_due_changed() = 0;

  /// Runs deferred actions, then those that they deferred, for at most a few rounds. Returns whether any are left.
  bool run_deferred();
  /// An action was deferred, so the loop must call run_deferred() at the end of this turn.
  virtual void handle_deferred() = 0;
  /// Runs `task` as a deferred action.
  void defer(std::function<void()> task);

  /// How many Timers and Deferreds exist.
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

  /// Sets the deadline, in place of any other. A deadline in the past is due in the next turn of the loop.
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

/// An action that runs at the end of the loop's present turn, after all ready events. So many reasons to act cause one
/// action, and no caller is called back from inside its own call.
class Deferred {
 public:
  Deferred(EventLoop& loop, std::function<void()> action);
  ~Deferred();
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  /// Schedules the action. Harmless if it is scheduled already. An action that is scheduled by an action waits for the
  /// next round.
  void schedule();

 private:
  friend class EventLoop;
  EventLoop& loop_;
  // Shared with the loop while it runs, because the action may destroy this object.
  std::shared_ptr<const std::function<void()>> action_;
  bool scheduled_ = false;
};

}  // namespace weightcast
