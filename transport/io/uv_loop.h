#pragma once

#include <functional>
#include <memory>

#include "transport/io/event_loop.h"

struct uv_loop_s;

namespace weightcast {

/// The daemon's loop: libuv, on the thread that runs it, with libuv's thread pool. The destructor waits for work of
/// offload() and for connections that still flush after their close(). Any other open handle is a bug by then, and ends
/// the process with the handle's name.
///
/// All timers share one timerfd, exact to tens of microseconds. libuv's own timers count milliseconds, which are 125 KB
/// at 1 Gbit/s. A descriptor for each timer would halve the number of connections that a process can have.
class UvLoop final : public EventLoop {
 public:
  /// `threads`: that one piece of work may have. The process's first loop with work decides how many the pool has.
  explicit UvLoop(unsigned threads = 2);
  ~UvLoop() override;

  [[nodiscard]] Instant now() const override;
  [[nodiscard]] UnixMillis unix_ms() const override;
  void post(std::function<void()> task) override;
  std::shared_ptr<Job> offload(std::function<void()> work, std::function<void()> done) override;
  [[nodiscard]] Duration processor_time() const override;
  [[nodiscard]] unsigned threads_per_job_max() const override { return threads_; }
  [[nodiscard]] unsigned jobs_at_once_max() const override { return threads_; }

  /// Runs until stop(), or until there is nothing to wait for. Signals do not count, nor do future calls of post() that
  /// nobody has announced by expect_posts().
  void run();
  /// Runs one turn: waits for an event, at most until `deadline`, and handles what is ready.
  void run_until(Instant deadline);
  void stop();

  /// Calls `handler` on the loop's thread for SIGINT and SIGTERM, instead of the default action.
  void on_terminate(std::function<void(int signal)> handler);
  /// The same for SIGHUP.
  void on_hangup(std::function<void()> handler);

  /// run() and the destructor wait for what another thread will post: +1 before that thread begins, -1 after its task
  /// has run. Loop thread only.
  void expect_posts(int change);

  /// Calls of offload() whose `done` has not run yet.
  [[nodiscard]] std::size_t jobs_under_way() const;

  [[nodiscard]] uv_loop_s* uv() { return uv_; }

 protected:
  void handle_due_changed() override;
  void handle_deferred() override;

 private:
  struct Impl;
  const unsigned threads_;
  std::unique_ptr<Impl> impl_;
  uv_loop_s* uv_;
};

/// Watches a file descriptor. Somebody else owns it, and it outlives the watch.
class FdWatch {
 public:
  struct Ready {
    bool readable = false;
    bool writable = false;
    bool failed = false;  ///< the descriptor has an error or cannot be watched; watching has stopped
  };

  FdWatch(UvLoop& loop, int fd, std::function<void(Ready)> on_ready);
  ~FdWatch();
  FdWatch(const FdWatch&) = delete;
  FdWatch& operator=(const FdWatch&) = delete;

  /// Level-triggered: `on_ready` runs in each turn until the cause is gone or is no longer watched.
  void watch(bool readable, bool writable);

 private:
  struct Impl;
  Impl* impl_;  // freed by libuv's close callback
};

}  // namespace weightcast
