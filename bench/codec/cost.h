#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>

namespace weightcast::bench {

/// What some work took: the least of several goes.
struct Cost {
  double wall_s = std::numeric_limits<double>::infinity();
  double cpu_s = std::numeric_limits<double>::infinity();

  [[nodiscard]] static double process_cpu_s() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
  }

  void measure(const auto& work) {
    const auto start = std::chrono::steady_clock::now();
    const double cpu_start_s = process_cpu_s();
    work();
    cpu_s = std::min(cpu_s, process_cpu_s() - cpu_start_s);
    wall_s = std::min(wall_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
};

}  // namespace weightcast::bench
