#include "trainer/capacity/activation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/random.h"

namespace weightcast {
namespace {

/// What a rollout costs, but for a factor.
double cost_of(const PoolWorker& worker) {
  return worker.mu > 0 ? worker.price_per_hour / worker.mu : std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<std::size_t> activation_order(std::span<const PoolWorker> pool, Activation activation, std::uint64_t seed) {
  std::vector<std::size_t> order(pool.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
    const double cost_x = activation == Activation::kCost ? cost_of(pool[x]) : 0;
    const double cost_y = activation == Activation::kCost ? cost_of(pool[y]) : 0;
    return std::tie(cost_x, pool[y].mu, pool[x].name) < std::tie(cost_y, pool[x].mu, pool[y].name);
  });
  if (activation == Activation::kRandom) {
    Random random(seed);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  }
  return order;
}

std::vector<std::size_t> choose_active(std::span<const PoolWorker> pool, double target, Activation activation,
                                       std::uint64_t seed) {
  std::vector<std::size_t> active;
  double mu = 0;
  for (const std::size_t worker : activation_order(pool, activation, seed)) {
    if (reaches(mu, target)) break;
    if (pool[worker].mu <= 0) continue;
    active.push_back(worker);
    mu += pool[worker].mu;
  }
  return active;
}

bool reaches(double mu, double target) { return mu >= target * (1 - 1e-12); }

}  // namespace weightcast
