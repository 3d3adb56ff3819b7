#include "trainer/capacity/capacity_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weightcast {
namespace {

/// The next whole number. A quotient that rounding left just above one counts as that one.
std::uint64_t steps_in(double span_s, double step_s) {
  constexpr double kMax = 1e15;
  return static_cast<std::uint64_t>(std::ceil(std::min(span_s / step_s, kMax) - 1e-9));
}

}  // namespace

double mu_min(const LoopRates& rates) {
  const auto kappa = static_cast<double>(rates.kappa);
  const double left_s = kappa * rates.step_s - rates.t_bcast_s;
  return left_s > 0 ? kappa * rates.rollouts_per_step / left_s : std::numeric_limits<double>::infinity();
}

double wait_per_publication_s(const LoopRates& rates, double mu) {
  const auto kappa = static_cast<double>(rates.kappa);
  return std::max(0.0, rates.t_bcast_s + kappa * rates.rollouts_per_step / mu - kappa * rates.step_s);
}

double bubble_ratio(const LoopRates& rates, double mu) {
  const double wait_s = wait_per_publication_s(rates, mu);
  if (wait_s == 0) return 0;
  // So that an endless wait gives 1.
  return 1 / (1 + static_cast<double>(rates.kappa) * rates.step_s / wait_s);
}

double cost_per_step(const LoopRates& rates, double mu, double price_per_hour) {
  return price_per_hour / 3600 * (rates.step_s + wait_per_publication_s(rates, mu) / static_cast<double>(rates.kappa));
}

std::uint64_t staleness_bound(const LoopRates& rates, double mu) {
  return rates.kappa + steps_in(rates.t_bcast_s + rates.rollouts_per_step / mu, rates.step_s) - 1;
}

std::uint64_t staleness_bound_of_oldest_token(const LoopRates& rates, double mu, double rollout_s) {
  return staleness_bound(rates, mu) + steps_in(rollout_s, rates.step_s);
}

}  // namespace weightcast
