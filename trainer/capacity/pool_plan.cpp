#include "trainer/capacity/pool_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_text.h"
#include "base/settings/nearest_name.h"
#include "base/text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr double kNumberMax = 1e12;
constexpr std::size_t kWorkersMax = 100'000;
constexpr std::size_t kNameBytesMax = 255;

Error refuse(std::string why) { return fail(Errc::kInvalidArgument, Op::kPlan, std::move(why)); }

Status check_members(const Json& object, const std::string& what, std::span<const std::string_view> known) {
  if (!object.is_object()) return refuse(fmt::format("{} is no JSON object", what));
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return refuse(unknown_name("member of " + what, name, known));
    }
  }
  return {};
}

/// A number of `object`: at least `least`, or above it if `above`.
Result<double> number_of(const Json& object, const std::string& what, const char* name, double least, bool above) {
  const auto found = object.find(name);
  if (found == object.end()) return refuse(fmt::format("{} has no '{}'", what, name));
  if (!found->is_number()) return refuse(fmt::format("{}: '{}' is no number", what, name));
  const auto value = found->get<double>();
  // Written so that NaN is refused, too.
  if (!(value <= kNumberMax && (above ? value > least : value >= least))) {
    return refuse(fmt::format("{}: '{}' is {}; it is {} {}, and at most {:g}", what, name, value,
                              above ? "above" : "at least", least, kNumberMax));
  }
  return value;
}

Result<std::uint64_t> whole_of(const Json& object, const std::string& what, const char* name, std::uint64_t least) {
  WC_ASSIGN(const double value, number_of(object, what, name, static_cast<double>(least), false));
  if (value != std::floor(value)) return refuse(fmt::format("{}: '{}' is {}, no whole number", what, name, value));
  return static_cast<std::uint64_t>(value);
}

Result<PoolWorker> parse_worker(const Json& json, std::size_t position) {
  constexpr std::array<std::string_view, 3> kMembers{"name", "mu", "price_per_hour"};
  const std::string what = fmt::format("workers[{}]", position);
  WC_TRY(check_members(json, what, kMembers));
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return refuse(fmt::format("{}: 'name' is no text", what));
  PoolWorker worker;
  worker.name = name->get<std::string>();
  if (worker.name.empty() || worker.name.size() > kNameBytesMax) {
    return refuse(fmt::format("{}: 'name' has {} bytes; it has 1 to {}", what, worker.name.size(), kNameBytesMax));
  }
  WC_ASSIGN(worker.mu, number_of(json, what, "mu", 0, false));
  WC_ASSIGN(worker.price_per_hour, number_of(json, what, "price_per_hour", 0, false));
  return worker;
}

Result<PoolPlan> plan_of(const Pool& pool, const std::vector<std::size_t>& active) {
  const LoopRates& rates = pool.rates;
  PoolPlan plan;
  plan.mu_min = mu_min(rates);
  if (!std::isfinite(plan.mu_min)) {
    return refuse(
        fmt::format("kappa x T_s is {} s and t_bcast_s is {}: the learner waits for every broadcast, with any "
                    "number of workers; raise kappa, or send less (patches) or faster",
                    static_cast<double>(rates.kappa) * rates.step_s, rates.t_bcast_s));
  }
  plan.target = pool.alpha * plan.mu_min;
  plan.price_per_hour = pool.learner_price_per_hour;
  for (const std::size_t worker : active) {
    plan.active.push_back(pool.workers[worker].name);
    plan.mu += pool.workers[worker].mu;
    plan.price_per_hour += pool.workers[worker].price_per_hour;
  }
  if (plan.mu <= 0) return refuse("no worker of the pool gives rollouts: every 'mu' is 0");
  plan.wait_s = wait_per_publication_s(rates, plan.mu);
  plan.bubble_ratio = bubble_ratio(rates, plan.mu);
  plan.s_max_bound = staleness_bound(rates, plan.mu);
  plan.cost_per_step = cost_per_step(rates, plan.mu, plan.price_per_hour);
  return plan;
}

}  // namespace

Result<Pool> parse_pool(std::string_view text) {
  constexpr std::array<std::string_view, 8> kMembers{
      "T_s", "R", "t_bcast_s", "kappa", "S", "alpha", "learner_price_per_hour", "workers"};
  const Json json = parse_json(text);
  if (json.is_discarded()) return refuse(fmt::format("no JSON, or nested deeper than {} levels", kJsonDepthMax));
  const std::string what = "the pool";
  WC_TRY(check_members(json, what, kMembers));
  Pool pool;
  WC_ASSIGN(pool.rates.step_s, number_of(json, what, "T_s", 0, true));
  WC_ASSIGN(pool.rates.rollouts_per_step, number_of(json, what, "R", 0, true));
  WC_ASSIGN(pool.rates.t_bcast_s, number_of(json, what, "t_bcast_s", 0, false));
  WC_ASSIGN(pool.rates.kappa, whole_of(json, what, "kappa", 1));
  if (json.contains("S")) {
    WC_ASSIGN(pool.max_staleness, whole_of(json, what, "S", 0));
  }
  if (json.contains("alpha")) {
    WC_ASSIGN(pool.alpha, number_of(json, what, "alpha", 0, true));
  }
  if (json.contains("learner_price_per_hour")) {
    WC_ASSIGN(pool.learner_price_per_hour, number_of(json, what, "learner_price_per_hour", 0, false));
  }
  const auto workers = json.find("workers");
  if (workers == json.end() || !workers->is_array() || workers->empty() || workers->size() > kWorkersMax) {
    return refuse(fmt::format("{}: 'workers' is no list of 1 to {} workers", what, kWorkersMax));
  }
  std::set<std::string> names;
  for (const Json& item : *workers) {
    WC_ASSIGN(PoolWorker worker, parse_worker(item, pool.workers.size()));
    if (!names.insert(worker.name).second) {
      return refuse(fmt::format("workers[{}]: there is another '{}'", pool.workers.size(), printable(worker.name)));
    }
    pool.workers.push_back(std::move(worker));
  }
  return pool;
}

double PoolPlan::steps_per_day(const LoopRates& rates) const {
  return 86'400 / (rates.step_s + wait_s / static_cast<double>(rates.kappa));
}

Result<PoolPlan> plan_pool(const Pool& pool, Activation activation, std::uint64_t seed) {
  const double target = pool.alpha * mu_min(pool.rates);
  return plan_of(pool, choose_active(pool.workers, target, activation, seed));
}

Result<PoolPlan> plan_given_workers(const Pool& pool, const std::vector<std::string>& active) {
  std::vector<std::string_view> names;
  for (const PoolWorker& worker : pool.workers) names.push_back(worker.name);
  std::vector<std::size_t> positions;
  for (const std::string& name : active) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return fail(Errc::kNotFound, Op::kPlan, unknown_name("worker of the pool", name, names));
    const auto position = static_cast<std::size_t>(found - names.begin());
    if (std::find(positions.begin(), positions.end(), position) == positions.end()) positions.push_back(position);
  }
  return plan_of(pool, positions);
}

nlohmann::json to_json(const PoolPlan& plan) {
  return {{"mu_min", plan.mu_min},          {"target", plan.target},
          {"active", plan.active},          {"cost_per_step", plan.cost_per_step},
          {"wait_s", plan.wait_s},          {"bubble_ratio", plan.bubble_ratio},
          {"s_max_bound", plan.s_max_bound}};
}

std::string describe(const Pool& pool, const PoolPlan& plan) {
  std::string names;
  for (const std::string& name : plan.active) names += (names.empty() ? "" : ", ") + printable(name);
  const double per_day = plan.steps_per_day(pool.rates);
  std::string text = fmt::format(
      "the learner needs {:.4g} rollouts/s (mu_min), and {:.4g} to be safe (alpha {:g})\n"
      "{} of {} workers give {:.4g}: {}\n"
      "{} cost {:.4g} per step, {:.4g} per hour, {:.4g} per day of {:.4g} steps\n"
      "the learner waits {:.4g} s per publication, {:.2f} % of its time\n"
      "rollouts lag at most {} steps\n",
      plan.mu_min, plan.target, pool.alpha, plan.active.size(), pool.workers.size(), plan.mu, names,
      pool.learner_price_per_hour > 0 ? "learner and workers" : "they", plan.cost_per_step, plan.price_per_hour,
      plan.cost_per_step * per_day, per_day, plan.wait_s, 100 * plan.bubble_ratio, plan.s_max_bound);
  if (!reaches(plan.mu, plan.target)) {
    text +=
        fmt::format("these workers do not reach the target: {:.4g} rollouts/s are missing\n", plan.target - plan.mu);
  }
  if (pool.max_staleness && plan.s_max_bound > *pool.max_staleness) {
    text += fmt::format("S is {}: rollouts that lag by more are lost; raise S, or lower kappa or t_bcast_s\n",
                        *pool.max_staleness);
  }
  return text;
}

}  // namespace weightcast
