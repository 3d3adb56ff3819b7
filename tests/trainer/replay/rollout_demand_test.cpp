#include "trainer/replay/rollout_demand.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kGroups = 10;

Instant at(double seconds) { return Instant(from_seconds(seconds)); }

/// Steps of `step` seconds whose batches are there when they are wanted, and groups that take `group` seconds.
RolloutDemand steady(double step, double group, double t_bcast) {
  RolloutDemand demand(kGroups);
  demand.handle_broadcast_time(t_bcast);
  for (int i = 0; i < 40; ++i) {
    demand.handle_wanted(at(i * step), kGroups);
    demand.handle_taken(at(i * step));
    for (std::uint64_t g = 0; g < kGroups; ++g) demand.handle_whole(Duration::zero(), from_seconds(group));
  }
  return demand;
}

TEST(RolloutDemand, WantsABatchWhileNobodyKnowsHowLongAStepTakes) {
  RolloutDemand demand(kGroups);
  EXPECT_EQ(demand.groups_wanted(at(0)), kGroups);
  demand.handle_wanted(at(0), 0);
  EXPECT_EQ(demand.groups_wanted(at(5)), kGroups);
  demand.handle_taken(at(5));
  EXPECT_EQ(demand.groups_wanted(at(5)), kGroups);
}

TEST(RolloutDemand, ReleasesABatchWhenTheVersionBeforeItHasArrived) {
  // Groups take a third of a step, so any moment of the first two thirds will do. At 2 s workers get the new version.
  RolloutDemand demand = steady(30, 10, 2);
  const double begin = 39 * 30;
  EXPECT_EQ(demand.groups_wanted(at(begin + 1)), 0u);
  EXPECT_EQ(demand.groups_wanted(at(begin + 2.5)), kGroups);
  EXPECT_EQ(demand.groups_wanted(at(begin + 29)), kGroups);
}

TEST(RolloutDemand, ReleasesMoreBatchesWhereGroupsTakeLongerThanSteps) {
  RolloutDemand demand = steady(10, 35, 1);
  const double begin = 39 * 10;
  // 38.9 s before a batch is wanted, a version has just arrived.
  EXPECT_EQ(demand.groups_wanted(at(begin + 0.5)), 3 * kGroups);
  EXPECT_EQ(demand.groups_wanted(at(begin + 1.5)), 4 * kGroups);
}

TEST(RolloutDemand, AWaitThatLeasesCouldHavePreventedRaisesTheReserve) {
  for (const bool is_refused : {false, true}) {
    RolloutDemand demand = steady(30, 10, 2);
    for (int i = 40; i < 44; ++i) {
      if (is_refused) demand.handle_refused();
      demand.handle_wanted(at(i * 30), kGroups - 3);
      demand.handle_taken(at(i * 30 + 3));
    }
    EXPECT_EQ(demand.reserve() >= 3, is_refused) << "where all workers have had work, the fleet is too small";
    const std::uint64_t before = demand.reserve();
    for (int i = 44; i < 144; ++i) {
      demand.handle_wanted(at(i * 30), kGroups);
      demand.handle_taken(at(i * 30));
    }
    EXPECT_EQ(demand.reserve(), 0u) << "what is not needed goes again; it was " << before;
  }
}

TEST(RolloutDemand, AReserveStandsInForGroupsThatTakeTooLong) {
  RolloutDemand demand(kGroups);
  Random random(1);
  double now = 0;
  for (int i = 0; i < 200; ++i) {
    // Two are late, unless others stand in for them.
    const std::uint64_t missing = 2 - std::min<std::uint64_t>(2, demand.reserve());
    demand.handle_refused();
    demand.handle_wanted(at(now), kGroups - missing);
    if (missing > 0) now += 5;
    demand.handle_taken(at(now));
    now += 30;
    // One in five takes two steps. To lease all of them two steps ahead would make all of them older.
    for (std::uint64_t g = 0; g < kGroups; ++g) {
      demand.handle_whole(Duration::zero(), from_seconds(random.chance(0.2) ? 55 : 10));
    }
  }
  EXPECT_LE(demand.lead_s(), 30);
  EXPECT_GE(demand.reserve(), 1u);
  EXPECT_LE(demand.reserve(), kGroups / 2);
}

TEST(RolloutDemand, ASmallFleetIsNoReasonToReleaseEarlier) {
  RolloutDemand demand = steady(10, 5, 0);
  // A lease that nobody could take for an hour counts as one that waited for a step.
  demand.handle_released(at(1000), 100);
  EXPECT_EQ(demand.handle_leased(at(1003), 99), from_seconds(3));
  EXPECT_EQ(demand.handle_leased(at(4600), 99), from_seconds(10));
  EXPECT_EQ(demand.handle_leased(at(4600), 100), Duration::zero()) << "nobody has released it";
}

}  // namespace
}  // namespace weightcast
