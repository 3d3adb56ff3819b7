#pragma once

#include <cstdint>

#include "base/time.h"

namespace weightcast {

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). It gives the same numbers on every platform; the distributions of
/// <random> do not promise that.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  [[nodiscard]] std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  /// In [0, end); `end` is not 0.
  [[nodiscard]] std::uint64_t below(std::uint64_t end) { return next() % end; }
  /// In [first, last].
  [[nodiscard]] std::uint64_t between(std::uint64_t first, std::uint64_t last) {
    return first + below(last - first + 1);
  }
  /// In [0, 1).
  [[nodiscard]] double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  [[nodiscard]] bool chance(double probability) { return unit() < probability; }
  [[nodiscard]] Duration duration(Duration first, Duration last) {
    return Duration(static_cast<std::int64_t>(
        between(static_cast<std::uint64_t>(first.count()), static_cast<std::uint64_t>(last.count()))));
  }

 private:
  std::uint64_t state_;
};

}  // namespace weightcast
