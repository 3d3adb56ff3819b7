#include "transport/core/plan/plan_repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "plan_fixture.h"
#include "proto/limits.h"
#include "relations.h"

namespace weightcast {
namespace {

using testing::ElementsAre;

std::vector<std::uint32_t> numbers(const std::vector<PeerId>& ids) {
  std::vector<std::uint32_t> out;
  for (const PeerId id : ids) out.push_back(id.value);
  return out;
}

/// Three chains of four: 1 4 7 10, 2 5 8 11, 3 6 9 12.
struct ThreeChains : testing::Test {
  PlanRequest request = echo_request(12, Topology::kChain);
  Plan plan = make_plan(request);

  void lose(std::uint32_t id) {
    std::erase_if(request.members, [&](const PlanMember& member) { return member.id == PeerId{id}; });
  }
  PlanMember& member(std::uint32_t id) {
    return *std::find_if(request.members.begin(), request.members.end(),
                         [&](const PlanMember& m) { return m.id == PeerId{id}; });
  }
  static std::vector<std::uint32_t> way(const Plan& of, std::uint32_t id) {
    return numbers(ancestors_of(of, PeerId{id}, 0));
  }
};

TEST_F(ThreeChains, ListAncestorsUpToTheOriginAndChildren) {
  EXPECT_THAT(way(plan, 10), ElementsAre(7, 4, 1, 0));
  EXPECT_THAT(way(plan, 1), ElementsAre(0));
  EXPECT_THAT(numbers(children_of(plan, kOriginId, 0)), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers(children_of(plan, PeerId{4}, 0)), ElementsAre(7));
  EXPECT_TRUE(children_of(plan, PeerId{10}, 0).empty());
  EXPECT_TRUE(children_of(plan, PeerId{99}, 0).empty());
}

TEST_F(ThreeChains, GiveThePlaceOfAParentToTheOnlyChildThatIsKeptApartFromIt) {
  request.apart = {{PeerId{4}, PeerId{7}}};
  const Plan mended = repair_plan(plan, request);
  EXPECT_THAT(way(mended, 10), ElementsAre(7, 1, 0));
  EXPECT_THAT(way(mended, 4), ElementsAre(10, 7, 1, 0));
  EXPECT_THAT(way(mended, 11), ElementsAre(8, 5, 2, 0)) << "nobody else moves";
}

TEST_F(ThreeChains, MoveADemotedRelayToTheTailOfItsOwnChain) {
  member(5).can_relay = false;
  const Plan mended = repair_plan(plan, request);
  EXPECT_THAT(way(mended, 5), ElementsAre(11, 8, 2, 0));
}

TEST_F(ThreeChains, PutNoDemotedRelayBehindATailThatIsKnownToBeMuchSlower) {
  member(5).can_relay = false;
  member(11).uplink = Rate::bits(60e6);
  EXPECT_THAT(way(repair_plan(plan, request), 5), ElementsAre(11, 8, 2, 0)) << "it is the demoted one that waits";
  member(11).uplink = Rate::bits(3e6);
  EXPECT_EQ(std::ranges::count(way(repair_plan(plan, request), 5), 11u), 0);
}

TEST_F(ThreeChains, LeaveADemotedTailWhereItIs) {
  member(11).can_relay = false;
  EXPECT_THAT(way(repair_plan(plan, request), 11), ElementsAre(8, 5, 2, 0));
}

TEST_F(ThreeChains, AppendLateJoinersToTheShortestChain) {
  lose(9);
  request.members.push_back({PeerId{13}, Rate::bits(100e6), Rate::bits(100e6), true});
  request.members.push_back({PeerId{14}, Rate::bits(100e6), Rate::bits(100e6), true});
  const Plan mended = repair_plan(plan, request);
  EXPECT_THAT(way(mended, 13), ElementsAre(12, 6, 3, 0));
  EXPECT_EQ(way(mended, 14).size(), 5u);  // all three are four deep now
}

TEST_F(ThreeChains, PutNobodyBehindASlowTailNorFallBackToSharingAFastRelay) {
  for (const std::uint32_t slow : {10u, 11u, 12u}) member(slow).uplink = member(slow).downlink = Rate::bits(5e6);
  request.members.push_back({PeerId{13}, Rate::bits(100e6), Rate::bits(100e6), true});
  const Plan mended = repair_plan(plan, request);
  EXPECT_THAT(way(mended, 13), ElementsAre(7, 4, 1, 0));  // beside 10, who leaves 95 of 100 Mbit/s
}

TEST_F(ThreeChains, KeepTheirChunkSizeEvenWhenEverybodyHasGone) {
  request.members.clear();
  const Plan empty = repair_plan(plan, request);
  request.members = members_of(200, Rate::bits(100e6), Rate::bits(100e6), 50);
  EXPECT_EQ(repair_plan(empty, request).chunk_bytes, plan.chunk_bytes);
}

TEST(Repair, SurvivesTheLossOfHalfOfTheRelaysInChainsWithoutForking) {
  PlanRequest request = echo_request(24, Topology::kChain);
  const Plan plan = make_plan(request);
  std::erase_if(request.members, [](const PlanMember& member) { return member.id.value % 2 == 0; });
  const Plan mended = repair_plan(plan, request);
  for (const PlanMember& member : request.members) EXPECT_LE(children_of(mended, member.id, 0).size(), 1u);
  EXPECT_LE(to_seconds(mended.predicted_t100), 1.02 * to_seconds(mended.bound));
}

TEST(Ancestors, OfALongChainAreTheNearestAndTheOrigin) {
  PlanRequest request = echo_request(40, Topology::kChain);
  request.origin_uplink = Rate::bits(100e6);
  const Plan plan = make_plan(request);
  const std::vector<PeerId> ancestors = ancestors_of(plan, PeerId{40}, 0);
  ASSERT_EQ(ancestors.size(), kAncestorsMax);
  EXPECT_EQ(ancestors.front(), PeerId{39});
  EXPECT_EQ(ancestors[kAncestorsMax - 2], PeerId{25});
  EXPECT_EQ(ancestors.back(), kOriginId);
}

RC_GTEST_PROP(RepairProperty, StaysSoundThroughAnySequenceOfFaultsAndJoiners, ()) {
  PlanRequest request = any_request(*any_topology());
  Plan plan = make_plan(request);
  request.topology = plan.topology;
  std::uint32_t next_id = 1000;
  const int rounds = *rc::gen::inRange(1, 6);
  for (int round = 0; round < rounds; ++round) {
    const int losses_of_10 = *rc::gen::inRange(0, 8);
    std::erase_if(request.members, [&](const PlanMember&) { return *rc::gen::inRange(0, 10) < losses_of_10; });
    for (PlanMember& member : request.members) {
      if (*rc::gen::inRange(0, 8) == 0) member.can_relay = false;
    }
    const auto joiners = any_members(*rc::gen::inRange(0u, 5u), next_id);
    next_id += 100;
    request.members.insert(request.members.end(), joiners.begin(), joiners.end());

    const Plan mended = repair_plan(plan, request);
    assert_sound(mended, request);
    assert_interior_in_one_stripe(mended);
    if (!plan.stripes.empty() && !mended.stripes.empty()) {
      RC_ASSERT(mended.chunk_bytes == plan.chunk_bytes);
      RC_ASSERT(mended.stripes.size() == plan.stripes.size());
      for (std::size_t s = 0; s < plan.stripes.size(); ++s) {
        RC_ASSERT(mended.stripes[s].weight == plan.stripes[s].weight);
      }
    }
    plan = mended;
  }
}

RC_GTEST_PROP(RepairProperty, MovesNobodyWhenNothingHappened, ()) {
  PlanRequest request = any_request(*any_topology());
  const Plan plan = make_plan(request);
  const Plan mended = repair_plan(plan, request);
  for (std::size_t s = 0; s < plan.stripes.size(); ++s) RC_ASSERT(mended.stripes[s].parents == plan.stripes[s].parents);
  RC_ASSERT(mended.finish == plan.finish);
}

RC_GTEST_PROP(RepairProperty, MovesOnlyOrphansAndInChainsToWhomTheyDial, ()) {
  PlanRequest request = echo_request(*rc::gen::inRange(1u, 60u), Topology::kChain);
  const Plan plan = make_plan(request);
  std::erase_if(request.members, [&](const PlanMember&) { return *rc::gen::inRange(0, 3) == 0; });
  if (request.members.empty()) return;
  const Plan mended = repair_plan(plan, request);
  const PlanIndex before(plan), after(mended);
  for (const PlanMember& member : request.members) {
    const auto way = before.ancestors_of(member.id, 0);
    const auto alive =
        std::find_if(way.begin(), way.end(), [&](PeerId id) { return id == kOriginId || after.contains(id); });
    RC_ASSERT(after.ancestors_of(member.id, 0).front() == *alive);
  }
}

}  // namespace
}  // namespace weightcast
