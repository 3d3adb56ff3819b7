#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>

namespace weightcast {

/// Runs `body(i)` for i in [0, count) on one thread or two. `body` must allow that.
template <typename Body>
void for_each_index(std::uint32_t count, bool parallel, const Body& body) {
  std::atomic<std::uint32_t> next{0};
  const auto work = [&] {
    for (std::uint32_t i = next++; i < count; i = next++) body(i);
  };
  std::optional<std::jthread> second;
  if (parallel) second.emplace(work);
  work();
}

}  // namespace weightcast
