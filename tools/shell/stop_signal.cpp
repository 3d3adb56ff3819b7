#include "tools/shell/stop_signal.h"

#include <csignal>

namespace weightcast {
namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  return stop_requested;
}

}  // namespace weightcast
