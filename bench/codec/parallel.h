#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace weightcast::bench {

/// Calls work(i) for every i below `count`, each once, on up to `threads` threads including this one. Returns when all
/// are done.
template <typename Work>
void for_each_index(std::size_t count, unsigned threads, const Work& work) {
  std::atomic<std::size_t> next{0};
  const auto drain = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> helpers;
  for (unsigned t = 1; t < threads; ++t) helpers.emplace_back(drain);
  drain();
}

}  // namespace weightcast::bench
