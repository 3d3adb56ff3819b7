#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trainer/capacity/activation.h"
#include "trainer/capacity/capacity_model.h"

namespace weightcast {

/// A question before anything is rented: this loop, and these workers.
struct Pool {
  LoopRates rates;
  std::optional<std::uint64_t> max_staleness;  ///< S, to be compared with the bound
  double alpha = 1.1;                          ///< how much more than mu_min is wanted
  double learner_price_per_hour = 0;           ///< in the workers' currency
  std::vector<PoolWorker> workers;
};

/// Reads {T_s, R, t_bcast_s, kappa, S, alpha, learner_price_per_hour, workers: [{name, mu, price_per_hour}]}; S, alpha
/// and learner_price_per_hour may be absent.
/// Errors: kInvalidArgument, which names the member, its value and its range.
[[nodiscard]] Result<Pool> parse_pool(std::string_view json);

struct PoolPlan {
  double mu_min = 0;
  double target = 0;  ///< alpha times mu_min
  double mu = 0;      ///< of `active`
  std::vector<std::string> active;
  double price_per_hour = 0;  ///< of `active` and the learner
  double cost_per_step = 0;   ///< of these, for a step with its share of the wait
  double wait_s = 0;          ///< per publication, that is once in kappa steps
  double bubble_ratio = 0;
  std::uint64_t s_max_bound = 0;  ///< (7)

  /// Training steps of a day, the waits included.
  [[nodiscard]] double steps_per_day(const LoopRates& rates) const;
};

/// The workers that `activation` chooses. Errors: kInvalidArgument, if kappa T_s is not above t_bcast_s: then no number
/// of workers keeps the learner busy; or if no worker gives rollouts.
[[nodiscard]] Result<PoolPlan> plan_pool(const Pool& pool, Activation activation, std::uint64_t seed);

/// What these workers give, whether or not they reach the target. Errors: as above; kNotFound (a name, with the
/// nearest).
[[nodiscard]] Result<PoolPlan> plan_given_workers(const Pool& pool, const std::vector<std::string>& active);

/// {mu_min, target, active, cost_per_step, wait_s, bubble_ratio, s_max_bound}.
[[nodiscard]] nlohmann::json to_json(const PoolPlan& plan);

/// For people: the workers, what they cost per step and day, and what falls short.
[[nodiscard]] std::string describe(const Pool& pool, const PoolPlan& plan);

}  // namespace weightcast
