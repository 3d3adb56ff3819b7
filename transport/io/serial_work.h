#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "transport/io/event_loop.h"

namespace weightcast {

/// One owner's blocking jobs, which run one after the other on pool threads, in the order of their arrival. Loop thread
/// only. The destructor waits for the running job, and drops the others and all callbacks.
class SerialWork {
 public:
  explicit SerialWork(EventLoop& loop) : loop_(loop) {}
  ~SerialWork();
  SerialWork(const SerialWork&) = delete;
  SerialWork& operator=(const SerialWork&) = delete;

  /// Runs `work` on a pool thread, where it must not use the loop thread's objects. `done` follows on the loop.
  void run(std::function<void()> work, std::function<void()> done);
  [[nodiscard]] bool idle() const { return queue_.empty(); }

 private:
  struct Queued {
    std::function<void()> work;
    std::function<void()> done;
  };

  void start_first();

  EventLoop& loop_;
  std::deque<Queued> queue_;  // the first is under way
  std::shared_ptr<EventLoop::Job> under_way_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();  // expires with this: callbacks look first
};

}  // namespace weightcast
