#include "bench/rollout/ablated_schedulers.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace weightcast::bench {
namespace {

using Kind = RolloutAction::Kind;
using Actions = std::vector<RolloutAction>;

constexpr Instant kNow{};

constexpr RolloutKey key(std::uint64_t group, std::uint32_t member, std::uint32_t attempt = 0) {
  return {group, member, attempt};
}
RolloutAction generate(RolloutKey rollout, std::uint32_t engine = 0) { return {Kind::kGenerate, rollout, engine}; }
RolloutAction action(Kind kind, RolloutKey rollout) { return {kind, rollout, 0}; }

SchedulerOptions options_of(std::uint32_t engines, std::uint32_t slots_per_engine) {
  SchedulerOptions options;
  options.engines = engines;
  options.slots_per_engine = slots_per_engine;
  options.group_size = 2;
  return options;
}

Actions drain(auto& scheduler) {
  Actions all;
  while (const auto next = scheduler.poll_action()) all.push_back(*next);
  return all;
}

/// Under version 1 at all engines.
template <typename Scheduler>
Scheduler started(Result<Scheduler> made, std::uint32_t engines) {
  Scheduler scheduler = std::move(made).value();
  for (std::uint32_t e = 0; e < engines; ++e) scheduler.handle_version(kNow, e, Version{1});
  return scheduler;
}

Actions groups(auto& scheduler, std::uint64_t count) {
  scheduler.handle_groups(kNow, 0, count);
  return drain(scheduler);
}
Actions generated(auto& scheduler, RolloutKey rollout) {
  scheduler.handle_generated(kNow, rollout);
  return drain(scheduler);
}
Actions finished(auto& scheduler, RolloutKey rollout, double reward = 0) {
  scheduler.handle_finished(kNow, rollout, reward);
  return drain(scheduler);
}

TEST(LockStepScheduler, AllWaitForTheSlowestEnvironment) {
  auto scheduler = started(LockStepScheduler::make(options_of(1, 3)), 1);
  EXPECT_EQ(scheduler.groups_wanted(), 2u);
  EXPECT_EQ(groups(scheduler, 2), (Actions{generate(key(0, 0)), generate(key(0, 1)), generate(key(1, 0))}));
  EXPECT_EQ(scheduler.groups_wanted(), 0u);
  EXPECT_EQ(generated(scheduler, key(0, 0)), (Actions{action(Kind::kStep, key(0, 0)), generate(key(1, 1))}));
  scheduler.handle_observation(kNow, key(0, 0));
  EXPECT_EQ(drain(scheduler), Actions());
  for (const RolloutKey rollout : {key(1, 0), key(1, 1), key(0, 1)}) {
    EXPECT_EQ(generated(scheduler, rollout), Actions{action(Kind::kStep, rollout)});
  }
  scheduler.handle_observation(kNow, key(1, 1));
  EXPECT_EQ(finished(scheduler, key(1, 0)), Actions()) << "one that ends is not waited for, but (0, 1) is";
  scheduler.handle_observation(kNow, key(0, 1));
  EXPECT_EQ(drain(scheduler), (Actions{generate(key(0, 0)), generate(key(0, 1)), generate(key(1, 1))}));
}

TEST(LockStepScheduler, OneThatIsStoppedIsNotWaitedFor) {
  auto scheduler = started(LockStepScheduler::make(options_of(1, 4)), 1);
  groups(scheduler, 2);
  for (const RolloutKey rollout : {key(0, 0), key(0, 1), key(1, 0)}) {
    generated(scheduler, rollout);
    scheduler.handle_observation(kNow, rollout);
  }
  EXPECT_EQ(drain(scheduler), Actions());
  scheduler.handle_group_abandoned(kNow, 1);
  EXPECT_EQ(drain(scheduler),
            (Actions{action(Kind::kAbort, key(1, 0)), action(Kind::kAbort, key(1, 1)),
                     action(Kind::kGroupDropped, key(1, 0)), generate(key(0, 0)), generate(key(0, 1))}));
}

TEST(WholeGroupScheduler, AGroupHoldsItsSlotsUntilItsLastRollout) {
  auto scheduler = started(WholeGroupScheduler::make(options_of(2, 3), false), 2);
  EXPECT_EQ(scheduler.slots(), 6u);
  EXPECT_EQ(groups(scheduler, 3),
            (Actions{generate(key(0, 0), 0), generate(key(0, 1), 0), generate(key(1, 0), 1), generate(key(1, 1), 1)}));
  EXPECT_EQ(generated(scheduler, key(0, 0)), Actions{action(Kind::kStep, key(0, 0))});
  EXPECT_EQ(finished(scheduler, key(0, 0)), Actions());
  EXPECT_EQ(generated(scheduler, key(0, 1)),
            (Actions{generate(key(2, 0), 0), generate(key(2, 1), 0), action(Kind::kStep, key(0, 1))}));
  EXPECT_EQ(finished(scheduler, key(0, 1)), (Actions{action(Kind::kSend, key(0, 0)), action(Kind::kSend, key(0, 1)),
                                                     action(Kind::kGroupDone, key(0, 0))}));
  EXPECT_EQ(scheduler.stats().begun, 6u);
  EXPECT_EQ(scheduler.stats().sent, 2u);
}

TEST(WholeGroupScheduler, ABatchIsScoredWhenAllOfItIsGenerated) {
  auto scheduler = started(WholeGroupScheduler::make(options_of(2, 2), true), 2);
  EXPECT_GT(scheduler.groups_wanted(), 1000u);
  EXPECT_EQ(groups(scheduler, 3).size(), 4u);
  EXPECT_EQ(scheduler.groups_wanted(), 0u);
  for (const RolloutKey rollout : {key(1, 0), key(0, 1)}) EXPECT_EQ(generated(scheduler, rollout), Actions());
  EXPECT_EQ(generated(scheduler, key(0, 0)), (Actions{generate(key(2, 0)), generate(key(2, 1))}));
  for (const RolloutKey rollout : {key(2, 0), key(2, 1)}) EXPECT_EQ(generated(scheduler, rollout), Actions());
  std::vector<RolloutKey> all;
  Actions steps;
  for (std::uint64_t group = 0; group < 3; ++group) {
    for (std::uint32_t member = 0; member < 2; ++member) {
      all.push_back(key(group, member));
      steps.push_back(action(Kind::kStep, all.back()));
    }
  }
  EXPECT_EQ(generated(scheduler, key(1, 1)), steps);
  for (const RolloutKey rollout : std::span(all).first(5)) finished(scheduler, rollout);
  EXPECT_EQ(scheduler.groups_wanted(), 0u);
  finished(scheduler, all.back());
  EXPECT_GT(scheduler.groups_wanted(), 1000u);
}

TEST(WholeGroupScheduler, FiltersGroupsOfEqualRewards) {
  SchedulerOptions options = options_of(1, 4);
  options.filter_equal_rewards = true;
  auto scheduler = started(WholeGroupScheduler::make(options, false), 1);
  groups(scheduler, 2);
  for (const RolloutKey rollout : {key(0, 0), key(0, 1), key(1, 0), key(1, 1)}) generated(scheduler, rollout);
  finished(scheduler, key(0, 0), 1);
  EXPECT_EQ(finished(scheduler, key(0, 1), 1),
            (Actions{action(Kind::kAbort, key(0, 0)), action(Kind::kAbort, key(0, 1)),
                     action(Kind::kGroupDropped, key(0, 0))}));
  finished(scheduler, key(1, 0), 1);
  EXPECT_EQ(finished(scheduler, key(1, 1), 0).size(), 3u);
  EXPECT_EQ(scheduler.stats().groups_filtered, 1u);
  EXPECT_EQ(scheduler.stats().groups_dropped, 0u);
  EXPECT_EQ(scheduler.stats().forgotten, 2u);
}

TEST(WholeGroupScheduler, WhatIsSuspendedBeginsAnewAsAWhole) {
  auto scheduler = started(WholeGroupScheduler::make(options_of(1, 2), true), 1);
  groups(scheduler, 1);
  generated(scheduler, key(0, 0));
  scheduler.handle_suspended(kNow);
  EXPECT_EQ(drain(scheduler), (Actions{action(Kind::kAbort, key(0, 0)), action(Kind::kAbort, key(0, 1))}));
  EXPECT_EQ(generated(scheduler, key(0, 1)), Actions()) << "of the attempt that was stopped";
  scheduler.handle_resumed(kNow);
  EXPECT_EQ(drain(scheduler), (Actions{generate(key(0, 0, 1)), generate(key(0, 1, 1))}));
  EXPECT_EQ(scheduler.stats().suspended, 2u);
}

TEST(WholeGroupScheduler, RefusesGroupsThatAnEngineCannotDecodeAsOne) {
  const auto is_refused = [](const SchedulerOptions& options) {
    const auto made = WholeGroupScheduler::make(options, false);
    return !made.has_value() && made.error().message().find("decodes a group as one") != std::string::npos;
  };
  EXPECT_FALSE(is_refused(options_of(1, 2)));
  EXPECT_TRUE(is_refused(options_of(1, 1)));
  SchedulerOptions redundant = options_of(1, 4);
  redundant.group_size_redundancy = 1;
  EXPECT_TRUE(is_refused(redundant));
}

}  // namespace
}  // namespace weightcast::bench
