#include "bench/rollout/rollout_bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "trainer/capacity/capacity_model.h"

namespace weightcast::bench {
namespace {

TEST(RolloutBench, EverySuiteRuns) {
  RolloutWorldOptions base;
  base.steps = 1;
  base.warm_up_steps = 0;
  for (const std::string_view name : rollout_suite_names()) {
    SCOPED_TRACE(name);
    auto suite = rollout_suite(name, base);
    ASSERT_TRUE(suite.has_value());
    // The first place of the axis of each way is enough here.
    std::vector<RolloutCase> first;
    for (RolloutCase& c : suite->cases) {
      if (first.empty() || first.back().name != c.name) first.push_back(std::move(c));
    }
    suite->cases = std::move(first);
    shrink(*suite, 16);
    std::size_t seen = 0;
    const Status done = run_rollout_suite(*suite, [&](const RolloutCase& c) {
      ++seen;
      EXPECT_GT(c.result.step_s, 0);
      EXPECT_NE(rollout_line(c).find(c.name), std::string::npos);
    });
    EXPECT_TRUE(done.has_value()) << done.error().message();
    EXPECT_EQ(seen, suite->cases.size());
    EXPECT_EQ(to_json(*suite)["cases"].size(), seen);
    const std::string_view axis = suite->is_of_bubbles ? "the learner waits" : "seconds per training step";
    EXPECT_NE(to_svg(rollout_figure(*suite)).find(axis), std::string::npos);
  }
}

TEST(RolloutBench, BubblesEndWhereTheOverlapSaysSo) {
  for (const double t_bcast_s : {1.5, 6.0}) {
    RolloutWorldOptions base;
    base.steps = 40;
    base.t_bcast_s = t_bcast_s;
    RolloutSuite suite = *rollout_suite("bubble", base);
    ASSERT_TRUE(run_rollout_suite(suite, [](const RolloutCase&) {}).has_value());
    // The least number of workers without bubbles, of each S and way; the cases are in that order.
    std::map<std::string, std::pair<double, const RolloutCase*>> thresholds;
    for (const RolloutCase& c : suite.cases) {
      // The learner may wait for one percent. Where all engines stand still once in S - 1 steps, that comes as one wait
      // which no lease foresees.
      const double most = c.options.pauses_for_broadcast ? 0.05 : 0.02;
      if (c.result.bubble_ratio < most) thresholds.try_emplace(c.name, c.x, &c);
    }
    EXPECT_EQ(thresholds.size(), 6u);
    for (const auto& [name, threshold] : thresholds) {
      const RolloutWorldOptions& o = threshold.second->options;
      const double predicted = std::ceil(mu_min({10, 128, t_bcast_s, o.publish_interval}));
      if (o.pauses_for_broadcast) {
        EXPECT_NEAR(threshold.first, predicted, 1) << name << ", T_bcast " << t_bcast_s;
      } else {
        // While a version arrives, rollouts of the one before still count: so R / T suffices.
        EXPECT_NEAR(threshold.first, 13, 1) << name << ", T_bcast " << t_bcast_s;
        EXPECT_LE(threshold.first, predicted) << name << ", T_bcast " << t_bcast_s;
      }
    }
  }
}

TEST(RolloutBench, PrintsTheFloorBesideTheLag) {
  RolloutSuite suite;
  suite.cases.resize(1);
  suite.cases[0].result.staleness_mean = 2.125;
  suite.cases[0].result.staleness_floor = 1.75;
  EXPECT_NE(rollout_heading(suite).find(" stale  floor target"), std::string::npos) << rollout_heading(suite);
  EXPECT_NE(rollout_line(suite.cases[0]).find("  2.12   1.75 "), std::string::npos) << rollout_line(suite.cases[0]);
  EXPECT_EQ(to_json(suite)["cases"][0]["staleness_floor"], 1.75);
}

TEST(RolloutBench, NamesTheNearestSuite) {
  const auto suite = rollout_suite("scalin", {});
  ASSERT_FALSE(suite.has_value());
  EXPECT_NE(suite.error().message().find("the nearest is 'scaling'"), std::string::npos);
}

TEST(RolloutBench, RolloutsAreAsFreshAsTheirLengthAllows) {
  RolloutWorldOptions base;
  base.t_bcast_s = 2;
  RolloutSuite suite = *rollout_suite("staleness", base);
  // Every fourth case: all fleets, and all bounds.
  std::vector<RolloutCase> some;
  for (std::size_t i = 0; i < suite.cases.size(); i += 4) some.push_back(std::move(suite.cases[i]));
  suite.cases = std::move(some);
  ASSERT_TRUE(run_rollout_suite(suite, [](const RolloutCase&) {}).has_value());
  for (const RolloutCase& c : suite.cases) {
    SCOPED_TRACE(rollout_line(c));
    EXPECT_LE(c.result.bubble_ratio, 0.02);
    EXPECT_LE(c.result.staleness_mean, c.result.staleness_target);
    EXPECT_GE(c.result.staleness_mean, c.result.staleness_floor);
    EXPECT_LE(c.result.staleness_mean, c.result.staleness_floor + 0.55);
    const bool slows = !c.options.changes.empty() && c.options.changes[0].kind == WorkerChange::Kind::kSlows;
    EXPECT_LE(c.result.dropped_share, slows ? 0.04 : 0.0);
  }
}

}  // namespace
}  // namespace weightcast::bench
