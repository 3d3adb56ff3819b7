#include "transport/core/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>

#include "plan_fixture.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr double kLine64MiB_s = 64.0 * double(kMiB) * 8 / 100e6;  // payload / b

TEST(Topology, NamesRoundTripAndOthersAreRefusedByName) {
  for (const Topology t : {Topology::kAuto, Topology::kStar, Topology::kChain, Topology::kTree, Topology::kStriped}) {
    EXPECT_EQ(*parse_topology(to_string(t)), t);
  }
  EXPECT_THAT(parse_topology("ring"),
              FailsWith(Errc::kInvalidArgument, "'ring' is no topology (all: auto, star, chain, tree, striped"));
}

TEST(MakePlan, IsEmptyWithoutMembers) {
  const Plan plan = make_plan(echo_request(0, Topology::kAuto));
  EXPECT_TRUE(plan.stripes.empty());
  EXPECT_EQ(plan.predicted_t100, Duration::zero());
  EXPECT_EQ(plan.predicted(0.9), Duration::zero());
}

TEST(Star, TakesAsLongAsTheOriginOrTheWorkerNeeds) {
  for (const std::uint32_t n : {1u, 2u, 3u, 6u, 24u}) {
    const Plan plan = make_plan(echo_request(n, Topology::kStar));
    EXPECT_NEAR(to_seconds(plan.predicted_t100), std::max(1.0, n / 3.0) * kLine64MiB_s, 1e-6) << n;
  }
}

TEST(Star, GivesWhatASlowWorkerLeavesToTheOthers) {
  PlanRequest request = echo_request(4, Topology::kStar);
  request.members[3].downlink = Rate::bits(20e6);
  const Plan plan = make_plan(request);
  EXPECT_NEAR(plan.rates[0].bits_per_s(), 280e6 / 3, 1);
  EXPECT_NEAR(plan.rates[3].bits_per_s(), 20e6, 1);
}

TEST(Chain, MakesAsManyAsTheOriginFillsAndAppendsInRankOrderRoundRobin) {
  const Plan plan = make_plan(echo_request(8, Topology::kChain));
  ASSERT_EQ(plan.stripes.size(), 1u);
  const std::vector<PeerId> expected{PeerId{0}, PeerId{0}, PeerId{0}, PeerId{1},
                                     PeerId{2}, PeerId{3}, PeerId{4}, PeerId{5}};
  EXPECT_EQ(plan.stripes[0].parents, expected);
}

TEST(Chain, StaysWithinTwoPercentOfTheLineAtTwentyFourWorkers) {
  const Plan plan = make_plan(echo_request(24, Topology::kChain));
  EXPECT_LE(to_seconds(plan.predicted_t100), 1.01 * kLine64MiB_s);
  EXPECT_NEAR(to_seconds(plan.bound), kLine64MiB_s, 1e-6);
}

TEST(Chain, PutsASlowWorkerAtATailWhereItDelaysNobody) {
  PlanRequest request = echo_request(4, Topology::kChain);
  request.members[1] = {PeerId{2}, Rate::bits(20e6), Rate::bits(20e6), true};  // ranked second, and still last in line
  const Plan plan = make_plan(request);
  const std::vector<PeerId> expected{PeerId{0}, PeerId{1}, PeerId{0}, PeerId{0}};
  EXPECT_EQ(plan.stripes[0].parents, expected);
  for (const std::size_t fast : {0u, 2u, 3u}) EXPECT_NEAR(to_seconds(plan.finish[fast]), kLine64MiB_s, 1e-6);
  EXPECT_NEAR(plan.rates[1].bits_per_s(), 20e6, 1);
}

TEST(Chain, KeepsTheRankOrderAmongRatesThatDifferByNoise) {
  PlanRequest request = echo_request(6, Topology::kChain);
  request.members[0].uplink = Rate::bits(91e6);
  request.members[4].uplink = Rate::bits(99e6);
  const std::vector<PeerId> expected{PeerId{0}, PeerId{0}, PeerId{0}, PeerId{1}, PeerId{2}, PeerId{3}};
  EXPECT_EQ(make_plan(request).stripes[0].parents, expected);
}

TEST(Chain, EndsWithTheMembersThatCannotRelay) {
  PlanRequest request = echo_request(6, Topology::kChain);
  request.members[0].can_relay = false;
  request.members[1].can_relay = false;
  const std::vector<PeerId> expected{PeerId{4}, PeerId{5}, PeerId{0}, PeerId{0}, PeerId{0}, PeerId{3}};
  EXPECT_EQ(make_plan(request).stripes[0].parents, expected);
}

TEST(Tree, BeatsAChainWhereDelayAndNotRateDecides) {
  PlanRequest request = echo_request(200, Topology::kChain);
  request.payload_bytes = 256 * kKiB;
  request.hop_delay = 50ms;
  const Plan chain = make_plan(request);
  request.topology = Topology::kTree;
  EXPECT_LT(3 * make_plan(request).predicted_t100, chain.predicted_t100);
}

TEST(Striped, FillsAsymmetricLinksToNearTheBound) {
  PlanRequest request = echo_request(12, Topology::kStriped);
  request.members = members_of(12, Rate::bits(20e6), Rate::bits(100e6));
  const Plan plan = make_plan(request);
  EXPECT_NEAR(to_seconds(plan.bound), 64.0 * double(kMiB) * 8 / 45e6, 1e-6);  // (300 + 12 * 20) / 12 Mbit/s
  EXPECT_LE(to_seconds(plan.predicted_t100), 1.15 * to_seconds(plan.bound));
  request.topology = Topology::kChain;
  EXPECT_GE(to_seconds(make_plan(request).predicted_t100), 1.7 * to_seconds(plan.bound));
}

TEST(Striped, GivesEveryMemberAboutAsMuchFromTheOrigin) {
  PlanRequest request = echo_request(12, Topology::kStriped);
  request.members = members_of(12, Rate::bits(20e6), Rate::bits(100e6));
  const Plan plan = make_plan(request);
  std::vector<std::size_t> from_origin(12);
  for (const StripePlan& stripe : plan.stripes) {
    for (std::size_t i = 0; i < 12; ++i) from_origin[i] += stripe.parents[i] == kOriginId ? stripe.weight : 0;
  }
  const auto [least, most] = std::ranges::minmax(from_origin);
  EXPECT_EQ(least, most) << "else connections that share the origin's uplink alike do not end together";
}

TEST(Striped, WeighsStripesByTheUplinksOfTheirRelays) {
  PlanRequest request = echo_request(12, Topology::kStriped);
  for (std::size_t i = 0; i < 12; ++i) request.members[i].uplink = Rate::bits(i < 6 ? 150e6 : 15e6);
  const Plan plan = make_plan(request);
  EXPECT_LE(to_seconds(plan.predicted_t100), 1.1 * to_seconds(plan.bound));
}

TEST(Striped, ReachesTenThousandAtNearlyTheRateOfOneLink) {
  PlanRequest request = echo_request(10'000, Topology::kStriped);
  request.origin_uplink = Rate::bits(1e9);
  request.payload_bytes = kGiB;
  request.hop_delay = 10ms;
  const Plan plan = make_plan(request);
  EXPECT_LE(to_seconds(plan.predicted_t100), 1.06 * to_seconds(plan.bound));
}

TEST(Striped, LeavesASlowWorkerALeafThatDelaysNobody) {
  PlanRequest request = echo_request(8, Topology::kStriped);
  request.members[2] = {PeerId{3}, Rate::bits(20e6), Rate::bits(20e6), true};
  const Plan plan = make_plan(request);
  for (const StripePlan& stripe : plan.stripes) {
    for (const PeerId parent : stripe.parents) EXPECT_NE(parent, PeerId{3});
  }
  EXPECT_LE(to_seconds(plan.finish[0]), 1.02 * kLine64MiB_s);
}

TEST(Auto, TakesTheStarForAFewAndTheChainForMore) {
  EXPECT_EQ(make_plan(echo_request(3, Topology::kAuto)).topology, Topology::kStar);
  EXPECT_EQ(make_plan(echo_request(24, Topology::kAuto)).topology, Topology::kChain);
}

TEST(Auto, CostOfPlanningDoesNotGrowWithTheSquareOfTheMembers) {
  // Processor time, and the least of three: what else runs here must not decide.
  const auto cost = [](std::uint32_t members) {
    PlanRequest request = echo_request(members, Topology::kAuto);
    for (std::uint32_t i = 0; i < members; ++i) {
      request.members[i].uplink = Rate::bits(20e6 + 1e6 * double(i * 7919 % 101));
      request.members[i].can_relay = i % 10 != 0;
    }
    std::clock_t least = std::numeric_limits<std::clock_t>::max();
    for (int i = 0; i < 3; ++i) {
      const std::clock_t before = std::clock();
      EXPECT_EQ(make_plan(request).members.size(), members);
      least = std::min(least, std::clock() - before);
    }
    return double(least) / CLOCKS_PER_SEC;
  };
  const double of_a_thousand = cost(1'000);
  EXPECT_LT(cost(10'000), 35 * of_a_thousand) << "a hundred times would be quadratic";
}

TEST(Plan, PredictsTheTimeOfAFractionOfTheMembers) {
  PlanRequest request = echo_request(4, Topology::kChain);
  request.members[3].downlink = Rate::bits(20e6);
  const Plan plan = make_plan(request);
  EXPECT_NEAR(to_seconds(plan.predicted(0.75)), kLine64MiB_s, 1e-6);
  EXPECT_EQ(plan.predicted(0.76), plan.predicted_t100);
  EXPECT_GT(to_seconds(plan.predicted_t100), 4.9 * kLine64MiB_s);
}

}  // namespace
}  // namespace weightcast
