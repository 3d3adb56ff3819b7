#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/io/event_loop.h"

namespace weightcast {

/// Threads beside a node's loop, for work of a millisecond or so that must not wait long: jobs of offload() may keep
/// all threads of the pool for seconds. They begin one thing after the other, in the order of run(), and start when
/// there is more work than threads. Loop thread only. The destructor waits for the work that runs and drops the rest;
/// callbacks that have been posted still follow.
class OffloadThreads {
 public:
  /// `loop` outlives it.
  explicit OffloadThreads(EventLoop& loop, unsigned threads_max = 1) : loop_(loop), threads_max_(threads_max) {}
  ~OffloadThreads();
  OffloadThreads(const OffloadThreads&) = delete;
  OffloadThreads& operator=(const OffloadThreads&) = delete;

  /// Runs `work` on a thread, then `done` on the loop's. Where the machine allows no more threads, `work` runs here.
  void run(std::function<void()> work, std::function<void()> done);

 private:
  struct Work {
    std::function<void()> work;
    std::function<void()> done;
  };

  void serve();
  void serve_here();

  EventLoop& loop_;
  const unsigned threads_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  std::size_t unfinished_ = 0;  // queued or running
  bool stopping_ = false;
  std::vector<std::jthread> threads_;  // none before the first work
};

}  // namespace weightcast
