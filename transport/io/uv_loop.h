#pragma once

#include <functional>
#include <memory>

#include "transport/io/event_loop.h"

struct uv_loop_s;

namespace weightcast {

/// The daemon's loop: libuv, on the thread that runs it, with libuv's pool of threads. Destroying it waits for work
/// that offload() still runs and for connections that still flush after their close(); any other open handle is a bug
/// by then and ends the process with its name.
///
/// All timers share one timerfd, exact to tens of microseconds: libuv's own count in milliseconds, which is 125 KB at
/// 1 Gbit/s, and a descriptor for each timer would halve the connections that a process can have.
class UvLoop final : public EventLoop {
 public:
  UvLoop();
  ~UvLoop() override;

  [[nodiscard]] Instant now() const override;
  [[nodiscard]] UnixMillis unix_ms() const override;
  void post(std::function<void()> task) override;
  std::shared_ptr<Job> offload(std::function<void()> work, std::function<void()> done) override;
  [[nodiscard]] unsigned threads_per_job_max() const override { return 2; }

  /// Runs until stop() or until nothing is left to wait for: what post() and on_terminate() may bring does not count.
  void run();
  /// One turn: runs what is ready, waiting at most until `deadline` for something to be.
  void run_until(Instant deadline);
  void stop();

  /// Calls `handler` on the loop's thread for SIGINT and SIGTERM, instead of the default action.
  void on_terminate(std::function<void(int signal)> handler);

  [[nodiscard]] uv_loop_s* uv() { return uv_; }

 protected:
  void handle_due_changed() override;
  void handle_deferred() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  uv_loop_s* uv_;
};

/// Watches a file descriptor that somebody else owns, and that outlives the watch.
class FdWatch {
 public:
  struct Ready {
    bool readable = false;
    bool writable = false;
    bool failed = false;  ///< an error waits on the descriptor, or it cannot be watched; watching has stopped
  };

  FdWatch(UvLoop& loop, int fd, std::function<void(Ready)> on_ready);
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
