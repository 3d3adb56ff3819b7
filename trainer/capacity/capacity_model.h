#pragma once

#include <cstdint>

namespace weightcast {

/// The rates of a training loop, as ECHO-2 (arXiv 2602.02192) counts them.
struct LoopRates {
  double step_s = 0;             ///< T: seconds of a training step that waits for nothing
  double rollouts_per_step = 0;  ///< R
  double t_bcast_s = 0;          ///< T_bcast: from a publication until workers generate under it
  std::uint64_t kappa = 1;       ///< training steps between publications
};

// `mu` is what the active workers give together, in rollouts per second, and above 0.

/// (2): the least mu with which the learner never waits, kappa R / (kappa T - T_bcast). Infinite if a broadcast takes
/// as long as the steps between publications.
[[nodiscard]] double mu_min(const LoopRates& rates);

/// What (1), T_bcast + kappa R / mu <= kappa T, lacks: seconds for which the learner waits per publication, that is
/// once in kappa steps. 0 if it holds.
[[nodiscard]] double wait_per_publication_s(const LoopRates& rates, double mu);

/// The share of time in which the learner waits: wait / (kappa T + wait).
[[nodiscard]] double bubble_ratio(const LoopRates& rates, double mu);

/// What a training step costs with its share of the wait, where all machines together cost `price_per_hour`.
[[nodiscard]] double cost_per_step(const LoopRates& rates, double mu, double price_per_hour);

/// (7): kappa + ceil((T_bcast + R / mu) / T) - 1, the most steps by which a rollout lags that counts from the version
/// under which it began to arrive.
[[nodiscard]] std::uint64_t staleness_bound(const LoopRates& rates, double mu);

/// (7'): the same where versions count from a rollout's oldest token. It adds ceil(rollout_s / T).
[[nodiscard]] std::uint64_t staleness_bound_of_oldest_token(const LoopRates& rates, double mu, double rollout_s);

}  // namespace weightcast
