#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace weightcast::client {

/// How another thread ends a call. Invariant: fd() is readable while the call that runs is cancelled.
class Cancellation {
 public:
  Cancellation() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Cancellation() {
    if (fd_ >= 0) ::close(fd_);
  }
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  /// Any thread; safe in a signal handler.
  void request() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof one);
  }
  /// A call begins: what was requested before is not meant for it.
  void clear() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd_, &count, sizeof count);
  }

  /// -1 where the process had no descriptor left.
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace weightcast::client
