#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

#include "base/time.h"

namespace weightcast::bench {

/// Processor time of this process, all threads together.
[[nodiscard]] inline double process_cpu_s() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// How long some work took.
struct Times {
  double wall_s = 0;
  double cpu_s = 0;  ///< of all threads
};

[[nodiscard]] Times times_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = process_cpu_s();
  work();
  return {to_seconds(std::chrono::steady_clock::now() - start), process_cpu_s() - cpu_start};
}

/// Of several goes, at least one.
[[nodiscard]] inline double median(std::vector<Times> times, double Times::*which) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end(),
                   [&](const Times& a, const Times& b) { return a.*which < b.*which; });
  return (*middle).*which;
}

}  // namespace weightcast::bench
