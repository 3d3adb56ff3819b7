#pragma once

#include <chrono>
#include <thread>

namespace weightcast {

/// Whether `condition` holds at last. The limit of a minute is for what never comes, not for a host that is slow.
template <typename Condition>
[[nodiscard]] bool eventually(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace weightcast
