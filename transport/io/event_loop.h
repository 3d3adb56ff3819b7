#pragma once

#include <functional>
#include <memory>

#include "base/time.h"

struct uv_loop_s;

namespace weightcast {

/// One libuv loop on one thread. Everything in transport/io belongs to one loop and is used on its thread only; post()
/// is the exception. Destroying it waits for work that offload() still runs and for connections that still flush after
/// their close(); any other open handle is a bug by then and ends the process with its name.
class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Monotonic, read afresh at each call.
  [[nodiscard]] Instant now() const;

  /// Runs until stop() or until nothing is left to wait for: what post() and on_terminate() may bring does not count.
  void run();
  /// One turn: runs what is ready, waiting at most until `deadline` for something to be.
  void run_until(Instant deadline);
  void stop();

  /// Runs `task` on the loop's thread, soon. From any thread; tasks keep their order per thread.
  void post(std::function<void()> task);

  /// Runs `work` on a pool thread, then `done` on the loop's thread. There are few such threads (UV_THREADPOOL_SIZE,
  /// 4).
  void offload(std::function<void()> work, std::function<void()> done);

  /// Calls `handler` on the loop's thread for SIGINT and SIGTERM, instead of the default action.
  void on_terminate(std::function<void(int signal)> handler);

  [[nodiscard]] uv_loop_s* uv() { return uv_; }

 private:
  friend class Deferred;
  struct Impl;
  std::unique_ptr<Impl> impl_;
  uv_loop_s* uv_;
};

/// One deadline, exact to tens of microseconds (timerfd): libuv's own timers count in milliseconds, which is 125 KB at
/// 1 Gbit/s.
class Timer {
 public:
  Timer(EventLoop& loop, std::function<void()> on_due);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Replaces any earlier deadline. A time that has passed is due at the next turn of the loop.
  void arm(Instant due);
  void disarm();
  [[nodiscard]] bool armed() const;

 private:
  struct Impl;
  Impl* impl_;  // freed by libuv's close callback
};

/// An action that is put off to the end of the loop's present turn, when everything that was ready has been looked at:
/// many reasons to act become one act, and no caller finds itself called back from inside its own call.
class Deferred {
 public:
  Deferred(EventLoop& loop, std::function<void()> action);
  ~Deferred();
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  /// Harmless if it is scheduled already. Scheduled from inside an action, it waits for the next turn.
  void schedule();

 private:
  friend class EventLoop;
  EventLoop& loop_;
  // Shared with the loop while it runs, because the action may destroy this object.
  std::shared_ptr<const std::function<void()>> action_;
  bool scheduled_ = false;
};

/// Watches a file descriptor that somebody else owns, and that outlives the watch.
class FdWatch {
 public:
  struct Ready {
    bool readable = false;
    bool writable = false;
    bool failed = false;  ///< an error waits on the descriptor; watching has stopped
  };

  FdWatch(EventLoop& loop, int fd, std::function<void(Ready)> on_ready);
  ~FdWatch();
  FdWatch(const FdWatch&) = delete;
  FdWatch& operator=(const FdWatch&) = delete;

  /// Level-triggered: `on_ready` runs again each turn until the cause is gone or is no longer watched.
  void watch(bool readable, bool writable);

 private:
  struct Impl;
  Impl* impl_;  // freed by libuv's close callback
};

}  // namespace weightcast
