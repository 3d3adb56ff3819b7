#include "bench/paper/training_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/json_text.h"

namespace weightcast::bench {
namespace {

using testing::Contains;
using testing::Not;

TEST(TrainingSuite, ComesBackFromJson) {
  TrainingRun run;
  run.name = "kappa 10";
  run.seed = 42;
  run.columns = {{"reward", {0.25, 0.5}}, {"event_ratio", {std::numeric_limits<double>::quiet_NaN(), 0.75}}};
  run.lag_mean = 1.5;
  run.lag_median = 1;
  run.lag_p90 = 3;
  run.has_diverged = true;
  run.digests = {"00ff", "11"};
  const std::optional<TrainingRun> back = training_run(parse_json(json_text(to_json(run))));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->name, run.name);
  EXPECT_EQ(back->seed, run.seed);
  EXPECT_EQ(back->columns.at("reward"), run.columns.at("reward"));
  EXPECT_TRUE(std::isnan(back->columns.at("event_ratio")[0]));
  EXPECT_EQ(back->columns.at("event_ratio")[1], 0.75);
  EXPECT_EQ(back->lag_mean, 1.5);
  EXPECT_EQ(back->lag_median, 1);
  EXPECT_EQ(back->lag_p90, 3);
  EXPECT_TRUE(back->has_diverged);
  EXPECT_EQ(back->digests, run.digests);

  nlohmann::json lacking = to_json(run);
  lacking.erase("columns");
  EXPECT_FALSE(training_run(lacking).has_value());
  nlohmann::json wrong = to_json(run);
  wrong["columns"]["reward"][0] = "good";
  EXPECT_FALSE(training_run(wrong).has_value());
}

TEST(TrainingSuite, SaysItsSchedulesToTheLearner) {
  TrainingSuite suite;
  suite.settings = {{"learning_rate", "1e-3"}};
  suite.steps = 40;
  const std::vector<Setting> rare = settings_of(suite, {"rare", 10, 11, {1, 2, 3}}, 7);
  EXPECT_THAT(rare, Contains(Setting{"learning_rate", "1e-3"}));
  EXPECT_THAT(rare, Contains(Setting{"seed", "7"}));
  EXPECT_THAT(rare, Contains(Setting{"publish_interval", "10"}));
  EXPECT_THAT(rare, Contains(Setting{"max_staleness", "11"}));
  EXPECT_THAT(rare, Contains(Setting{"generator_lag", "1,2,3"}));
  const std::vector<Setting> never = settings_of(suite, {"never", {}, {}, {0}}, 7);
  EXPECT_THAT(never, Contains(Setting{"publish_interval", "40"}))
      << "with the last step, of whose weights nothing is made";
  EXPECT_THAT(never, Contains(Setting{"max_staleness", "unlimited"}));
  const std::vector<Setting> other = settings_of(suite, {"other", 1, 0, {0}, {{"learning_rate", "2e-3"}}, 3}, 7);
  EXPECT_THAT(other, Contains(Setting{"rollout_source", "http"}));
  EXPECT_THAT(other, Not(Contains(Setting{"generator_lag", "0"})));
  EXPECT_EQ(other.back(), (Setting{"learning_rate", "2e-3"})) << "the last one wins";
}

TEST(TrainingSuite, TellsRunsApartByTheirWorkersAndTheirTask) {
  TrainingSuite suite;
  const TrainingCase alone{"a", 1, 0}, with_workers{"a", 1, 0, {0}, {}, 2};
  EXPECT_NE(run_json(suite, alone, 7), run_json(suite, with_workers, 7));
  const nlohmann::json before = run_json(suite, with_workers, 7), alone_before = run_json(suite, alone, 7);
  suite.worker_settings = {{"running_max", "8"}};
  EXPECT_NE(run_json(suite, with_workers, 7), before);
  EXPECT_EQ(run_json(suite, alone, 7), alone_before) << "it has none";
  suite.task_program = "weightcast-bench-sokoban";
  EXPECT_NE(run_json(suite, alone, 7), alone_before);
}

}  // namespace
}  // namespace weightcast::bench
