#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "base/time.h"

namespace weightcast::bench {

[[nodiscard]] inline double clock_s(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Processor time of this process, all threads together.
[[nodiscard]] inline double process_cpu_s() { return clock_s(CLOCK_PROCESS_CPUTIME_ID); }

[[nodiscard]] inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return to_seconds(std::chrono::steady_clock::now() - start);
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
  return {seconds_since(start), process_cpu_s() - cpu_start};
}

/// Returns what `work` returns, and adds to `all` how long it took.
[[nodiscard]] auto timed(std::vector<Times>& all, const auto& work) {
  std::optional<decltype(work())> result;
  all.push_back(times_of([&] { result.emplace(work()); }));
  return *std::move(result);
}

/// The upper one of two in the middle. Of at least one value.
[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Of one member of each.
template <typename Measured>
[[nodiscard]] double median(const std::vector<Measured>& all, double Measured::*which) {
  std::vector<double> values;
  for (const Measured& one : all) values.push_back(one.*which);
  return median(std::move(values));
}

}  // namespace weightcast::bench
