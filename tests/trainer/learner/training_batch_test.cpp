#include "trainer/learner/training_batch.h"

#include <gtest/gtest.h>

#include "tasks/registry.h"
#include "tests/trainer/replay/replay_fixture.h"

namespace weightcast {
namespace {

TEST(TrainingBatch, HasAdvantagesAndLagsPerRollout) {
  const auto task = make_task("arithmetic", {}).value();
  std::vector<RolloutGroup> groups(2);
  groups[0].rollouts = {rollout("w", 1, "a", 7, 1), rollout("w", 2, "a", 5, 0)};
  groups[1].rollouts = {rollout("w", 3, "b", 7, 1), rollout("w", 4, "b", 7, 1)};
  const auto batch = make_training_batch(*task, groups, Version{7}, "none").value();
  EXPECT_EQ(batch.advantages, (std::vector<double>{0.5, -0.5, 0, 0}));
  EXPECT_EQ(batch.lags, (std::vector<double>{0, 2, 0, 0}));
  EXPECT_EQ(batch.response_lengths, (std::vector<std::uint64_t>{1, 1, 1, 1}));
  Metrics metrics;
  set_batch_metrics(metrics, batch, 1);
  EXPECT_EQ(metrics.at("critic/score/mean"), 0.75);
  EXPECT_EQ(metrics.at("off_policy/max"), 2);
  EXPECT_EQ(metrics.at("off_policy/median"), 0);
  EXPECT_EQ(metrics.at("off_policy/p99"), 2);
  EXPECT_EQ(metrics.at("response_length/clip_ratio"), 1);
  EXPECT_FALSE(make_training_batch(*task, groups, Version{7}, "nonsense").has_value());
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

}  // namespace
}  // namespace weightcast
