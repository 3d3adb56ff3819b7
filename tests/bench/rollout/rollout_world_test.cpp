#include "bench/rollout/rollout_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "base/random.h"

namespace weightcast::bench {
namespace {

/// 4 GPUs of 4 slots, batches of 8 groups of 4.
RolloutWorldOptions small() {
  RolloutWorldOptions o;
  o.gpus = 4;
  o.slots_per_gpu = 4;
  o.tokens_mean = 500;
  o.tokens_sd = 500;
  o.rollout_batch_size = 32;
  o.scheduler.group_size = 4;
  o.scheduler.max_staleness.reset();
  o.scheduler.rollout_time_max = std::chrono::hours(10);
  o.train_gpu_s_per_rollout = 1;
  o.steps = 5;
  return o;
}

RolloutWorldResult run(const RolloutWorldOptions& options) {
  const auto result = run_rollout_world(options);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return result.has_value() ? *result : RolloutWorldResult{};
}

TEST(RolloutWorld, RealisedSumsKeepProposition1) {
  double largest = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    RolloutWorldOptions o = small();
    o.seed = seed;
    o.gpus = static_cast<std::uint32_t>(random.between(1, 6));
    o.slots_per_gpu = static_cast<std::uint32_t>(random.between(1, 8));
    o.tokens_sd = 2000 * random.unit();
    o.token_slowdown = random.chance(0.5) ? 0.1 : 0;
    o.slow_gpu_share = random.chance(0.5) ? 0.3 : 0;
    o.t_bcast_s = random.chance(0.5) ? 7 : 0;
    o.scheduler.group_size_redundancy = static_cast<std::uint32_t>(random.below(3));
    o.steps = 3;
    const RolloutWorldResult result = run(o);
    EXPECT_GT(result.bound_1_share, 0);
    EXPECT_LE(result.bound_1_share, 1 + 1e-6);
    largest = std::max(largest, result.bound_1_share);
  }
  EXPECT_GT(largest, 0.9);  // it is no empty bound
}

TEST(RolloutWorld, ABatchRolloutBreaksThatBound) {
  // What the bound is worth: without queue scheduling it does not hold. (Computed here, as the world claims it not.)
  RolloutWorldOptions o = small();
  o.rollout_batch_size = 128;
  o.scheduling = Scheduling::kBatch;
  const RolloutWorldResult result = run(o);
  EXPECT_EQ(result.bound_1_share, 0);
  bool is_broken = false;
  for (const SimulatedStep& step : result.steps) {
    is_broken = is_broken || step.generate_s > step.slot_s / (o.gpus * o.slots_per_gpu) + step.longest_s;
  }
  EXPECT_TRUE(is_broken);
}

TEST(RolloutWorld, ASeedGivesOneRun) {
  RolloutWorldOptions o = small();
  o.train_share = 0.5;
  o.scheduler.async_generation_ratio = 1;
  EXPECT_EQ(run(o).steps, run(o).steps);
  RolloutWorldOptions other = o;
  other.seed = 2;
  EXPECT_NE(run(o).steps, run(other).steps);
}

TEST(RolloutWorld, SynchronousRolloutsNeverLag) {
  const RolloutWorldResult result = run(small());
  EXPECT_EQ(result.staleness_max, 0u);
  EXPECT_EQ(result.wasted_share, 0);
  for (const SimulatedStep& step : result.steps) {
    EXPECT_NEAR(step.trained_s, 8, 1e-6);  // 32 rollouts of a GPU second on 4 GPUs
    EXPECT_NEAR(step.seconds, step.waited_s + step.trained_s, 1e-9);
  }
}

TEST(RolloutWorld, AsynchronousRolloutsLagByAtMostTheRatio) {
  for (const double ratio : {0.0, 0.5, 1.0, 2.0, 3.5}) {
    RolloutWorldOptions o = small();
    o.train_share = 0.5;
    o.t_bcast_s = 3;
    o.scheduler.async_generation_ratio = ratio;
    o.steps = 20;
    EXPECT_LE(static_cast<double>(run(o).staleness_max), std::ceil(ratio)) << ratio;
  }
}

TEST(RolloutWorld, TheFloorIsTheLagOfGroupsThatBeginJustInTime) {
  RolloutWorldOptions o = small();
  o.train_share = 0.5;
  o.slots_per_gpu = 64;
  o.scheduler.max_staleness = 8;
  o.tokens_sd = 0;
  o.t_bcast_s = 3;
  o.warm_up_steps = 10;
  o.steps = 20;
  // Steps of 16 s.
  for (const auto& [rollout_s, floor] :
       {std::pair(5, 1), std::pair(12, 1), std::pair(14, 2), std::pair(28, 2), std::pair(30, 3)}) {
    o.tokens_mean = rollout_s / o.token_s;
    const RolloutWorldResult result = run(o);
    EXPECT_NEAR(result.group_s, rollout_s, 0.01) << "nothing keeps them waiting";
    EXPECT_NEAR(result.staleness_floor, floor, 0.01) << rollout_s;
    EXPECT_GE(result.staleness_mean, result.staleness_floor) << rollout_s;
    EXPECT_LE(result.staleness_mean, result.staleness_floor + 1) << rollout_s;
  }
  o.train_share = 0;
  EXPECT_EQ(run(o).staleness_floor, 0) << "a learner that waits for its rollouts";
}

TEST(RolloutWorld, StalenessIsBoundedBySAlone) {
  RolloutWorldOptions o = small();
  o.train_share = 0.25;
  o.train_gpu_s_per_rollout = 0.1;
  o.scheduler.async_generation_ratio = 8;
  o.scheduler.max_staleness = 2;
  o.steps = 30;
  const RolloutWorldResult result = run(o);
  EXPECT_LE(result.staleness_max, 2u);
  EXPECT_GT(result.staleness_max, 0u);
}

TEST(RolloutWorld, AFasterLearnerWaitsAndASlowerOneDoesNot) {
  RolloutWorldOptions o = small();
  o.train_share = 0.5;
  o.scheduler.async_generation_ratio = 3;
  o.train_gpu_s_per_rollout = 20;  // 320 s a step, where rollouts take about 40 s
  EXPECT_LT(run(o).bubble_ratio, 0.01);
  o.train_gpu_s_per_rollout = 0.01;
  EXPECT_GT(run(o).bubble_ratio, 0.9);
}

TEST(RolloutWorld, RedundantEnvironmentsOutrunDeadOnes) {
  RolloutWorldOptions o = small();
  o.turns = 3;
  o.environment_s_mean = 5;
  o.environment_s_sd = 3;
  o.dead_environment_share = 0.02;
  o.scheduler.rollout_time_max = std::chrono::seconds(300);
  o.num_env_groups = 8;
  o.steps = 10;
  const double without = run(o).step_s;
  o.scheduler.group_size_redundancy = 1;
  o.num_env_groups = 10;
  const RolloutWorldResult with = run(o);
  EXPECT_LT(with.step_s, 0.7 * without);
  EXPECT_GT(with.scheduler.surplus + with.scheduler.suspended, 0u);
}

TEST(RolloutWorld, FilteredGroupsAreReplaced) {
  RolloutWorldOptions o = small();
  o.scheduler.filter_equal_rewards = true;
  o.no_signal_share = 0.5;
  const RolloutWorldResult plain = run(o);
  EXPECT_GT(plain.scheduler.groups_filtered, 20u);
  o.max_additional_running_prompts = 8;
  EXPECT_LT(run(o).step_s, plain.step_s);
}

TEST(RolloutWorld, RefusesOptionsThatMakeNoSense) {
  const auto expect_refused = [](const char* why, const std::function<void(RolloutWorldOptions&)>& set) {
    RolloutWorldOptions o = small();
    set(o);
    const auto result = run_rollout_world(o);
    const std::string refusal = result.has_value() ? "not refused" : result.error().message();
    EXPECT_NE(refusal.find(why), std::string::npos) << refusal;
  };
  using Options = RolloutWorldOptions;
  expect_refused("rollout_batch_size is 33; it is a multiple of group_size, 4",
                 [](Options& o) { o.rollout_batch_size = 33; });
  expect_refused("leaves none to train", [](Options& o) { o.train_share = 0.01; });
  expect_refused("tokens_mean is 0", [](Options& o) { o.tokens_mean = 0; });
  expect_refused("num_env_groups is 100000001", [](Options& o) { o.num_env_groups = 100'000'001; });
  expect_refused("group_size is 0; it is 1 to", [](Options& o) { o.scheduler.group_size = 0; });
  expect_refused("turns is 2", [](Options& o) {
    o.turns = 2;
    o.scheduling = Scheduling::kBatch;
  });
  // Versions come too seldom for what S allows.
  expect_refused("nothing happens any more", [](Options& o) {
    o.train_share = 0.5;
    o.publish_interval = 3;
    o.scheduler.max_staleness = 1;
  });
}

}  // namespace
}  // namespace weightcast::bench
