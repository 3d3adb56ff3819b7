#include "bench/paper/run_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "base/result.h"
#include "bench/times.h"

namespace weightcast::bench {
namespace {

// Student's t at 0.975 for 1 to 30 degrees of freedom.
constexpr std::array kT = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                           2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                           2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
constexpr std::size_t kResamples = 4000;
constexpr std::size_t kLossesBefore = 5;
constexpr double kLossFactor = 10;
constexpr std::size_t kLowSteps = 10;

}  // namespace

bool Estimate::contains(double value) const { return half_width && std::abs(value - mean) <= *half_width; }

Estimate estimate_of(std::span<const double> values) {
  WC_CHECK(!values.empty() && values.size() <= kT.size() + 1);
  const auto count = static_cast<double>(values.size());
  Estimate estimate{std::accumulate(values.begin(), values.end(), 0.0) / count, {}};
  if (values.size() < 2) return estimate;
  double squares = 0;
  for (const double value : values) squares += (value - estimate.mean) * (value - estimate.mean);
  estimate.half_width = kT[values.size() - 2] * std::sqrt(squares / (count - 1) / count);
  return estimate;
}

Interval bootstrap_interval(std::span<const double> values, std::uint64_t seed) {
  WC_CHECK(!values.empty());
  const auto count = static_cast<double>(values.size());
  Random random(seed);
  std::vector<double> means(kResamples);
  for (double& mean : means) {
    for (std::size_t i = 0; i < values.size(); ++i) mean += values[random.below(values.size())];
    mean /= count;
  }
  std::ranges::sort(means);
  return {std::accumulate(values.begin(), values.end(), 0.0) / count, means[kResamples / 40],
          means[kResamples - kResamples / 40]};
}

double last_mean(std::span<const double> values, std::size_t count) {
  double sum = 0;
  std::size_t found = 0;
  for (std::size_t i = values.size(); i > 0 && found < count; --i) {
    if (!std::isfinite(values[i - 1])) continue;
    sum += values[i - 1];
    ++found;
  }
  return found == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(found);
}

Collapse collapse_of(std::span<const double> losses, std::span<const double> rewards) {
  Collapse collapse;
  const auto is_finite = [](double value) { return std::isfinite(value); };
  collapse.diverged = !std::ranges::all_of(losses, is_finite) || !std::ranges::all_of(rewards, is_finite);
  std::vector<double> before;
  for (const double loss : losses) {
    if (before.size() >= kLossesBefore && std::abs(loss) > kLossFactor * median(before)) collapse.loss = true;
    if (std::isfinite(loss)) before.push_back(std::abs(loss));
  }
  double best = -std::numeric_limits<double>::infinity();
  std::size_t low = 0;
  for (const double reward : rewards) {
    best = std::max(best, reward);
    low = reward < best / 2 ? low + 1 : 0;
    collapse.reward = collapse.reward || low >= kLowSteps;
  }
  return collapse;
}

}  // namespace weightcast::bench
