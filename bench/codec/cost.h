#pragma once

#include <algorithm>
#include <limits>

#include "bench/times.h"

namespace weightcast::bench {

/// What some work took: the least of several goes.
struct Cost {
  double wall_s = std::numeric_limits<double>::infinity();
  double cpu_s = std::numeric_limits<double>::infinity();

  void measure(const auto& work) {
    const Times took = times_of(work);
    cpu_s = std::min(cpu_s, took.cpu_s);
    wall_s = std::min(wall_s, took.wall_s);
  }
};

}  // namespace weightcast::bench
