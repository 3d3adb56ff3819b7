#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace weightcast {

/// A thread for what a handler must not do on the server's: jobs in their order, of which a bounded number waits.
class WorkThread {
 public:
  explicit WorkThread(std::size_t jobs_max) : jobs_max_(jobs_max), thread_([this] { run(); }) {}
  /// Finishes the job that runs. Those that wait are dropped.
  ~WorkThread() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  /// False if too many wait. Then `job` was not moved from. Any thread.
  [[nodiscard]] bool try_post(std::function<void()>& job) {
    {
      const std::scoped_lock lock(mutex_);
      if (jobs_.size() >= jobs_max_) return false;
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
    return true;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      {
        const std::function<void()> job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
      }
      lock.lock();
    }
  }

  const std::size_t jobs_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace weightcast
