#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/paper/paper_item.h"
#include "trainer/capacity/pool_plan.h"

namespace weightcast::bench {
namespace {

// Dollars per hour, as ECHO-2 counts.
constexpr double kA100 = 3.06, kRtx5090 = 0.35;
// Fitted to table 2: a step, R / mu of nine and of ten machines, and what a machine costs beside four A100.
constexpr double kStep_s = 1600, kNine_s = 750.95, kTen_s = 706.05, kMachine = 0.6645, kMachineOfAll = 0.975;
constexpr double kRollouts = 128;

Pool pool_of(double t_bcast_s, std::size_t machines, double batch_s, double price) {
  Pool pool;
  pool.rates = {kStep_s, kRollouts, t_bcast_s, 2};
  pool.learner_price_per_hour = 4 * kA100;
  for (std::size_t i = 0; i < machines; ++i) {
    pool.workers.push_back({fmt::format("m{}", i), kRollouts / batch_s / static_cast<double>(machines), price});
  }
  return pool;
}

Result<PoolPlan> plan_all(const Pool& pool) {
  std::vector<std::string> names;
  for (const PoolWorker& worker : pool.workers) names.push_back(worker.name);
  return plan_given_workers(pool, names);
}

PaperItem table_2() {
  PaperItem item;
  item.name = "echo2-table2";
  item.of = "ECHO-2, table 2";
  item.fitted =
      "T, R / mu and the price of a machine; the pool that is chosen from at random has 18 machines, nine of "
      "them dearer, so that the mean price is $0.975";
  constexpr std::uint64_t kOrders = 1000;
  item.inputs = {{"T_s", kStep_s},
                 {"kappa", 2},
                 {"nine_s", kNine_s},
                 {"ten_s", kTen_s},
                 {"machine", kMachine},
                 {"learner", 4 * kA100},
                 {"mean_of_all", kMachineOfAll},
                 {"orders", kOrders}};
  item.evaluate = [](const StepTimes&, PaperResult& result) -> Status {
    // The product's rule: the cheapest machines that reach alpha mu_min, of twelve.
    Pool pool = pool_of(1437, 12, kNine_s * 9 / 12, kMachine);
    WC_ASSIGN(const PoolPlan full, plan_pool(pool, Activation::kCost, 0));
    WC_ASSIGN(const PoolPlan nine, plan_all(pool_of(1830, 9, kNine_s, kMachine)));
    WC_ASSIGN(const PoolPlan ten, plan_all(pool_of(1872, 10, kTen_s, kMachine)));
    for (int i = 0; i < 6; ++i) {
      pool.workers.push_back({fmt::format("n{}", i), pool.workers[0].mu, kMachine});
    }
    // Half of the pool is dearer.
    for (std::size_t i = 9; i < 18; ++i) pool.workers[i].price_per_hour = 2 * kMachineOfAll - kMachine;
    double sum = 0, least = 1e9, most = 0;
    for (std::uint64_t seed = 0; seed < kOrders; ++seed) {
      WC_ASSIGN(const PoolPlan random, plan_pool(pool, Activation::kRandom, seed));
      const double ratio = random.cost_per_step / full.cost_per_step;
      sum += ratio;
      least = std::min(least, ratio);
      most = std::max(most, ratio);
    }
    result.rows = {
        {"machines that alpha = 1.1 chooses", 9, static_cast<double>(full.active.size())},
        {"wait, T_bcast 1437 s, s", 0, full.wait_s},
        {"wait, nine machines, T_bcast 1830 s, s", 131.9, nine.wait_s},
        {"wait, ten machines, T_bcast 1872 s, s", 84.1, ten.wait_s},
        {"cost of a step, $", 8.098, full.cost_per_step},
        {"cost without P2P, nine machines, to that", 1.0412, nine.cost_per_step / full.cost_per_step, {}, 'D'},
        {"cost without P2P, ten machines, to that", 1.0657, ten.cost_per_step / full.cost_per_step, {}, 'D'},
        {"cost of random activation to that, mean", 1.153, sum / kOrders, {}, 'D'},
        {"... least", {}, least},
        {"... most", {}, most}};
    result.claims = {{"nine machines, and no wait", full.active.size() == 9 && full.wait_s == 0},
                     {"without P2P a tenth machine costs more than it saves", ten.cost_per_step > nine.cost_per_step},
                     {"random activation is the dearest", sum / kOrders > ten.cost_per_step / full.cost_per_step}};
    result.figure = {"Table 2 of ECHO-2: cost of a training step",
                     "with the learner; from 1, all: full, without P2P (9), without P2P (10), random activation",
                     {"row"},
                     {"dollars"},
                     {{"", {{"ours", false, {}}, {"paper", true, {}}}}}};
    const double ours[] = {full.cost_per_step, nine.cost_per_step, ten.cost_per_step,
                           full.cost_per_step * sum / kOrders};
    const double paper[] = {8.098, 8.432, 8.630, 9.339};
    for (int i = 0; i < 4; ++i) {
      result.figure.panels[0].series[0].points.push_back({1.0 + i, ours[i]});
      result.figure.panels[0].series[1].points.push_back({1.0 + i, paper[i]});
    }
    return {};
  };
  return item;
}

PaperItem figure_3a() {
  PaperItem item;
  item.name = "echo2-fig3a";
  item.of = "ECHO-2, figure 3a";
  item.fitted = "the four times of a step, read from what the paper prints";
  item.inputs = {
      {"distributed_s", {1631.2, 1649.3}}, {"central_s", {1508.2, 1582.3}}, {"A100", kA100}, {"RTX5090", kRtx5090}};
  item.evaluate = [](const StepTimes&, PaperResult& result) -> Status {
    Figure::Series series{"4 A100 + 8 RTX 5090", false, {}};
    const auto cost = [](double step_s, double price) { return cost_per_step({step_s, kRollouts, 0, 1}, 1, price); };
    bool is_a_third = true;
    for (const auto& [central_s, derived] :
         {std::pair(1508.2, std::pair(-33.6, -32.8)), std::pair(1582.3, std::pair(-36.7, -36.0))}) {
      for (const auto& [step_s, expected] : {std::pair(1631.2, derived.first), std::pair(1649.3, derived.second)}) {
        const double saved = 100 * (cost(step_s, 4 * kA100 + 8 * kRtx5090) / cost(central_s, 8 * kA100) - 1);
        result.rows.push_back(
            {fmt::format("cost of steps of {} s to 8 A100 at {} s, %", step_s, central_s), expected, saved, {}, 'D'});
        series.points.push_back({step_s, saved});
        is_a_third = is_a_third && saved < -32 && saved > -37;
      }
    }
    result.claims = {{"a third less (P -33.3 to -36.3 %)", is_a_third}};
    result.figure = {"Figure 3a of ECHO-2: cost against 8 A100",
                     "the upper pair against steps of 1508.2 s",
                     {"seconds of a step"},
                     {"percent"},
                     {{"", {series}}}};
    return {};
  };
  return item;
}

constexpr std::uint64_t kBounds[] = {3, 6, 11};

/// R / mu of nine machines gives the rate of one. A machine decodes 8 rollouts at a time.
PaperItem figure_3c() {
  PaperItem item;
  item.name = "echo2-fig3c";
  item.of = "ECHO-2, figure 3c";
  item.fitted = "nothing: T, T_bcast and the rate of a machine are those of table 2";
  item.inputs = {{"T_s", kStep_s}, {"t_bcast_s", 1437}, {"machine_s", 9 * kNine_s}};
  item.suite.name = item.name;
  item.suite.title = "Steps of 1600 s, T_bcast 1437 s, publication every S - 1 steps";
  item.suite.x_label = "machines";
  item.suite.is_of_bubbles = true;
  for (const std::uint64_t bound : kBounds) {
    for (int machines = 3; machines <= 10; ++machines) {
      RolloutWorldOptions o;
      o.workers = 1;
      o.gpus = static_cast<std::uint32_t>(machines) + 1;
      o.train_share = 1.0 / o.gpus;
      o.slots_per_gpu = 8;
      o.token_s = 8 * 9 * kNine_s / kRollouts / 1000;
      o.tokens_mean = 1000;
      o.tokens_sd = 0;
      o.rollout_batch_size = static_cast<std::uint64_t>(kRollouts);
      o.train_gpu_s_per_rollout = kStep_s / kRollouts;
      o.t_bcast_s = 1437;
      o.pauses_for_broadcast = true;
      o.publish_interval = bound - 1;
      o.scheduler.group_size = 4;
      o.scheduler.max_staleness = bound;
      o.scheduler.rollout_time_max = std::chrono::hours(24);
      o.warm_up_steps = 2 * o.publish_interval;
      o.steps = 20;
      const LoopRates rates{kStep_s, kRollouts, o.t_bcast_s, o.publish_interval};
      item.suite.cases.push_back({fmt::format("S = {}", bound),
                                  static_cast<double>(machines),
                                  bubble_ratio(rates, machines * kRollouts / (9 * kNine_s)),
                                  o,
                                  {}});
    }
  }
  item.evaluate = [](const StepTimes& times, PaperResult& result) -> Status {
    bool is_near = true, moves_left = true;
    double last = 1e9;
    for (const std::uint64_t bound : kBounds) {
      const LoopRates rates{kStep_s, kRollouts, 1437, bound - 1};
      const double least = mu_min(rates) * 9 * kNine_s / kRollouts;
      double knee = 0;
      for (const RolloutCase& c : times.runs()[0].cases) {
        // A version that arrives comes as one wait of up to 8 %, which no lease foresees.
        if (c.name == fmt::format("S = {}", bound) && c.result.bubble_ratio < 0.1 && knee == 0) knee = c.x;
      }
      result.rows.push_back({fmt::format("S = {}: machines from which the learner waits for less than 10 %", bound),
                             least,
                             knee,
                             {},
                             'D'});
      is_near = is_near && std::abs(knee - std::ceil(least)) <= 1;
      moves_left = moves_left && knee <= last;
      last = knee;
    }
    result.claims = {{"the knee is within one machine of mu_min", is_near},
                     {"it moves left with S", moves_left && last < result.rows[0].ours}};
    result.figure = rollout_figure(times.runs()[0]);
    return {};
  };
  return item;
}

}  // namespace

std::vector<PaperItem> echo2_items() { return {table_2(), figure_3a(), figure_3c()}; }

}  // namespace weightcast::bench
