#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weightcast::bench {

/// A mean and half the width of its 95 % interval: Student's t. The width is absent of fewer than two values.
struct Estimate {
  double mean = 0;
  std::optional<double> half_width;

  [[nodiscard]] bool contains(double value) const;
  /// All of the interval.
  [[nodiscard]] bool is_above_0() const { return half_width && mean - *half_width > 0; }
};

/// Of 1 to 31 values that are numbers.
[[nodiscard]] Estimate estimate_of(std::span<const double> values);

/// A mean and its 95 % interval.
struct Interval {
  double mean = 0, low = 0, high = 0;
};

/// Of one value at least: the 2.5th and the 97.5th of a hundred of the means of 4000 resamples with replacement, which
/// follow from `seed` (Efron, percentile bootstrap).
[[nodiscard]] Interval bootstrap_interval(std::span<const double> values, std::uint64_t seed);

/// The mean of the last `count` entries that are numbers, or of all if there are fewer; NaN without any.
[[nodiscard]] double last_mean(std::span<const double> values, std::size_t count);

/// What a run's collapse was seen by, of three signs.
struct Collapse {
  bool loss = false;  ///< a loss above ten times the median of those before it, without signs, from the sixth step on
  bool diverged = false;  ///< a loss or a reward is no number
  bool reward = false;    ///< ten steps in a row below half of the best reward until then

  [[nodiscard]] bool any() const { return loss || diverged || reward; }
};

/// Of a run with these losses and rewards by step.
[[nodiscard]] Collapse collapse_of(std::span<const double> losses, std::span<const double> rewards);

}  // namespace weightcast::bench
