#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

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
  /// The same, where `done` gets what `work` has returned.
  template <typename Work, typename Done>
  requires(!std::is_void_v<std::invoke_result_t<Work&>>) void run(Work work, Done done) {
    auto result = std::make_shared<std::optional<std::invoke_result_t<Work&>>>();
    run([work = std::move(work), result]() mutable { result->emplace(work()); },
        [done = std::move(done), result]() mutable { done(std::move(**result)); });
  }
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
