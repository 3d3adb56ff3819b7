#include "trainer/update/training_batch.h"

#include <gtest/gtest.h>

#include "tests/trainer/replay/replay_fixture.h"
#include "trainer/tasks/registry.h"

namespace weightcast {
namespace {

TEST(TrainingBatch, HasGroupsAndLagsPerRollout) {
  const auto task = make_task("arithmetic", {}).value();
  std::vector<RolloutGroup> groups(2);
  groups[0].rollouts = {rollout("w", 1, "a", 7, 1), rollout("w", 2, "a", 5, 0)};
  groups[1].rollouts = {rollout("w", 3, "b", 7, 1), rollout("w", 4, "b", 7, 1)};
  const auto batch = make_training_batch(*task, groups, Version{7});
  EXPECT_EQ(batch.group_ids, (std::vector<std::size_t>{0, 0, 1, 1}));
  EXPECT_EQ(batch.lags, (std::vector<double>{0, 2, 0, 0}));
  EXPECT_EQ(batch.response_lengths, (std::vector<std::uint64_t>{1, 1, 1, 1}));
  Metrics metrics;
  set_batch_metrics(metrics, batch, 1);
  EXPECT_EQ(metrics.at("critic/score/mean"), 0.75);
  EXPECT_EQ(metrics.at("off_policy/max"), 2);
  EXPECT_EQ(metrics.at("off_policy/median"), 0);
  EXPECT_EQ(metrics.at("off_policy/p99"), 2);
  EXPECT_EQ(metrics.at("response_length/clip_ratio"), 1);
}

/// Rollouts of strangers may not say whether they succeeded. A reward above 0 does not.
TEST(TrainingBatch, CountsSuccessWhereItIsKnown) {
  const auto task = make_task("arithmetic", {}).value();
  std::vector<RolloutGroup> groups(1);
  groups[0].rollouts = {rollout("w", 1, "a", 7, 1), rollout("w", 2, "a", 7, 1), rollout("w", 3, "a", 7, 0),
                        rollout("w", 4, "a", 7, 1)};
  const auto metrics_now = [&] {
    Metrics metrics;
    set_batch_metrics(metrics, make_training_batch(*task, groups, Version{7}), 1);
    return metrics;
  };
  EXPECT_EQ(metrics_now().count("critic/success_rate"), 0u);
  groups[0].rollouts[0].success = false;
  groups[0].rollouts[2].success = false;
  EXPECT_EQ(metrics_now().at("critic/success_rate"), 0);
  groups[0].rollouts[1].success = true;
  EXPECT_EQ(metrics_now().at("critic/success_rate"), 1.0 / 3);
}

TEST(TrainingBatch, WarnsIfAllResponsesAreCutOffAndNoneDiffersInReward) {
  TrainingBatch batch;
  EXPECT_EQ(batch_warning(batch, 16), "");
  batch.rewards = {0, 0};
  batch.response_lengths = {16, 16};
  EXPECT_NE(batch_warning(batch, 16).find("max_new_tokens (16)"), std::string::npos);
  batch.response_lengths = {16, 15};
  EXPECT_EQ(batch_warning(batch, 16), "");
  batch.response_lengths = {16, 16};
  batch.rewards = {0, 1};
  EXPECT_EQ(batch_warning(batch, 16), "");
}

TEST(RolloutMetrics, SayWhatCameOfAllRollouts) {
  ReplayStats stats;
  stats.admitted = 9;
  stats.taken = 8;
  EXPECT_EQ(rollout_summary(stats, 0),
            "rollouts: 9 admitted, 8 trained on, 0 malformed, 0 duplicates, 0 without signal, 0 refused");
  stats.duplicates = 1;
  stats.filtered = 4;
  stats.refused = {{"no_group", 2}, {"stale", 3}};
  EXPECT_EQ(rollout_summary(stats, 6),
            "rollouts: 9 admitted, 8 trained on, 6 malformed, 1 duplicates, 4 without signal, 5 refused (no_group 2, "
            "stale 3)");
  Metrics metrics;
  set_rollout_metrics(metrics, stats, 6);
  EXPECT_EQ(metrics, (Metrics{{"rollouts/admitted", 9},
                              {"rollouts/malformed", 6},
                              {"rollouts/duplicates", 1},
                              {"rollouts/filtered", 4},
                              {"rollouts/aborted", 0},
                              {"rollouts/lost", 0},
                              {"rollouts/refused/no_group", 2},
                              {"rollouts/refused/stale", 3}}));
}

}  // namespace
}  // namespace weightcast
