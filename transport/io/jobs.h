#pragma once

#include <functional>
#include <list>
#include <memory>
#include <stop_token>

#include "base/result.h"
#include "transport/io/event_loop.h"

namespace weightcast {

/// One owner's offloaded jobs, which can be cancelled. Loop thread only, except post(). After stop() or destruction no
/// job runs and no callback follows, so the objects that they use may be destroyed.
class Jobs {
 public:
  explicit Jobs(EventLoop& loop) : loop_(loop) {}
  ~Jobs() { stop(); }
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  [[nodiscard]] EventLoop& loop() { return loop_; }

  /// As EventLoop::offload(). `work` that takes more than some milliseconds looks at cancelled() between its pieces,
  /// and ends with cancelled_error().
  void run(std::function<void()> work, std::function<void()> done);
  /// As EventLoop::post(), but dropped after stop(). From any thread.
  void post(std::function<void()> task);

  /// Whether the jobs have been cancelled. Any thread.
  [[nodiscard]] bool cancelled() const { return stopping_.stop_requested(); }
  [[nodiscard]] static Error cancelled_error(Op op) { return fail(Errc::kClosed, op, "the node is being stopped"); }

  /// Asks the jobs to end soon. Their callbacks still follow.
  void cancel() { stopping_.request_stop(); }
  /// Cancels the jobs and waits until they have ended. Their callbacks do not follow.
  void stop();

 private:
  EventLoop& loop_;
  std::stop_source stopping_;
  std::list<std::shared_ptr<EventLoop::Job>> under_way_;
  // Expires with stop(): callbacks look first. Only the loop's thread does, so that none runs while it expires.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();
};

}  // namespace weightcast
