#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "transport/io/event_loop.h"

namespace weightcast {

/// Blocking jobs of one owner, one after the other on pool threads, in the order in which they were given. Loop thread
/// only. Destroying it waits for the job under way, drops the others and all callbacks.
class SerialWork {
 public:
  explicit SerialWork(EventLoop& loop) : loop_(loop) {}
  ~SerialWork();
  SerialWork(const SerialWork&) = delete;
  SerialWork& operator=(const SerialWork&) = delete;

  /// `work` runs on a pool thread and must not touch what the loop's thread uses; `done` follows on the loop.
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
