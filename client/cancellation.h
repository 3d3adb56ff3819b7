#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "base/files/unique_fd.h"

namespace weightcast::client {

/// Whether a handle is inside a call, and how another thread ends that call. One call at a time: begin(), cancelled()
/// and drain() inside it, end(). A request counts for the call that runs when it is made, from begin() to end(), and
/// for no other. Invariant: after a request that counts, fd() becomes readable; it may be readable without one.
class Cancellation {
 public:
  Cancellation() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  /// False if another call runs.
  [[nodiscard]] bool begin() {
    State idle = State::kIdle;
    return state_.compare_exchange_strong(idle, State::kRunning);
  }
  void end() { state_ = State::kIdle; }

  /// Any thread; safe in a signal handler. Has no effect while no call runs.
  void request() {
    State running = State::kRunning;
    if (!state_.compare_exchange_strong(running, State::kCancelled)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
  }
  [[nodiscard]] bool cancelled() const { return state_ == State::kCancelled; }
  /// Takes from fd() what requests have written so far, also late ones that were meant for an earlier call. Look at
  /// cancelled() after it: what is written from now on makes fd() readable again.
  void drain() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof count);
  }

  /// -1 where the process had no descriptor left.
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  enum class State : std::uint8_t { kIdle, kRunning, kCancelled };

  std::atomic<State> state_{State::kIdle};
  const UniqueFd fd_;
};

}  // namespace weightcast::client
