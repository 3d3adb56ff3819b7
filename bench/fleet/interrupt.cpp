#include "bench/fleet/interrupt.h"

#include <algorithm>
#include <csignal>
#include <thread>

namespace weightcast::bench {
namespace {

constexpr Duration kSlice = std::chrono::milliseconds(50);

sigset_t held_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void hold_interrupts() {
  const sigset_t set = held_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

Status check_interrupt() {
  // Left pending, so that everyone who asks hears of it.
  sigset_t pending;
  ::sigpending(&pending);
  if (::sigismember(&pending, SIGINT) == 0 && ::sigismember(&pending, SIGTERM) == 0) return {};
  return fail(Errc::kClosed, Op::kPublish, "it was interrupted; what was started has been ended");
}

Status sleep_for(Duration duration) {
  const auto deadline = std::chrono::steady_clock::now() + duration;
  for (;;) {
    WC_TRY(check_interrupt());
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return {};
    std::this_thread::sleep_for(std::min<Duration>(left, kSlice));
  }
}

}  // namespace weightcast::bench
