#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/io/event_loop.h"

namespace weightcast {

/// One thread beside a node's loop, for work of a millisecond or so that must not wait long: jobs of offload() may keep
/// all threads of the pool for seconds. It does one thing after the other, in the order of run(), and starts with the
/// first. Loop thread only. The destructor waits for the work that runs and drops the rest; callbacks that have been
/// posted still follow.
class OffloadThread {
 public:
  /// `loop` outlives it.
  explicit OffloadThread(EventLoop& loop) : loop_(loop) {}
  ~OffloadThread();
  OffloadThread(const OffloadThread&) = delete;
  OffloadThread& operator=(const OffloadThread&) = delete;

  /// Runs `work` on the thread, then `done` on the loop's. Where the machine allows no more threads, `work` runs here.
  void run(std::function<void()> work, std::function<void()> done);

 private:
  struct Work {
    std::function<void()> work;
    std::function<void()> done;
  };

  void serve();

  EventLoop& loop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool stopping_ = false;
  std::vector<std::jthread> thread_;  // none before the first work
};

}  // namespace weightcast
