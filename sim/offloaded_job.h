#pragma once

#include <functional>
#include <utility>

#include "transport/io/event_loop.h"

namespace weightcast::sim {

/// What a simulated loop's offload() returns. Runs its work once: when its time comes, or when somebody waits for it
/// before.
class OffloadedJob final : public EventLoop::Job {
 public:
  explicit OffloadedJob(std::function<void()> work) : work_(std::move(work)) {}
  void wait() override {
    if (const auto work = std::exchange(work_, nullptr)) work();
  }

 private:
  std::function<void()> work_;
};

}  // namespace weightcast::sim
