// Plans around edges that nobody can use: a child that cannot dial a parent.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>

#include "plan_fixture.h"
#include "transport/core/plan/plan_repair.h"

namespace weightcast {
namespace {

constexpr std::array kShaped{Topology::kChain, Topology::kTree, Topology::kStriped, Topology::kAuto};

PlanRequest one_chain_request(std::uint32_t count, Topology topology) {
  PlanRequest request = echo_request(count, topology);
  request.origin_uplink = Rate::bits(100e6);
  return request;
}

void assert_nobody_is_fed_by_who_is_apart(const Plan& plan, const PlanRequest& request) {
  for (const StripePlan& stripe : plan.stripes) {
    for (std::size_t at = 0; at < plan.members.size(); ++at) {
      if (stripe.parents[at] == kOriginId) continue;
      RC_ASSERT(!request.members[at].only_from_origin);
      RC_ASSERT(std::ranges::count(request.apart, ApartPair{stripe.parents[at], plan.members[at]}) == 0);
    }
  }
}

TEST(PlanApart, ChainThatMayNotHaveOneEdgeIsStillOneChain) {
  PlanRequest request = one_chain_request(8, Topology::kChain);
  const double free_s = to_seconds(make_plan(request).predicted_t100);
  for (std::uint32_t parent = 1; parent < 8; ++parent) {
    request.apart = {{PeerId{parent}, PeerId{parent + 1}}};
    const Plan plan = make_plan(request);
    EXPECT_EQ(std::ranges::count(plan.stripes[0].parents, kOriginId), 1) << parent;
    EXPECT_NEAR(to_seconds(plan.predicted_t100), free_s, 0.01 * free_s) << parent;
  }
}

TEST(PlanApart, WhoseEdgesAreAllForbiddenIsALeafAsIfItSaidSo) {
  for (const Topology topology : kShaped) {
    PlanRequest request = one_chain_request(12, topology);
    PlanRequest leaf_only = request;
    leaf_only.members[2].can_relay = false;
    for (std::uint32_t child = 1; child <= 12; ++child) {
      if (child != 3) request.apart.push_back({PeerId{3}, PeerId{child}});
    }
    const Plan plan = make_plan(request), expected = make_plan(leaf_only);
    ASSERT_EQ(plan.stripes.size(), expected.stripes.size()) << to_string(topology);
    for (std::size_t s = 0; s < plan.stripes.size(); ++s)
      EXPECT_EQ(plan.stripes[s].parents, expected.stripes[s].parents);
  }
}

TEST(PlanApart, WhoReachesNobodyIsFedByTheOriginAndMayFeedOthers) {
  for (const Topology topology : kShaped) {
    PlanRequest request = one_chain_request(12, topology);
    request.members[7].only_from_origin = true;
    const Plan plan = make_plan(request);
    for (const PeerId parent : parents_of(plan, PeerId{8})) EXPECT_EQ(parent, kOriginId) << to_string(topology);
    request.members[7].only_from_origin = false;
    // In a striped plan a relay has children in one stripe: the origin sends it all of the others, too.
    const double cost = topology == Topology::kStriped ? 1.55 : 1.01;
    EXPECT_LE(to_seconds(plan.predicted_t100), cost * to_seconds(make_plan(request).predicted_t100))
        << to_string(topology);
  }
}

TEST(PlanApart, WhatFewEdgesCostIsLittleInEveryTopology) {
  // Two subnets of six that do not reach one another; and every third neighbour.
  for (const Topology topology : kShaped) {
    PlanRequest request = one_chain_request(12, topology);
    request.origin_uplink = Rate::bits(300e6);
    const double free_s = to_seconds(make_plan(request).predicted_t100);
    for (std::uint32_t a = 1; a <= 6; ++a) {
      for (std::uint32_t b = 7; b <= 12; ++b)
        request.apart.insert(request.apart.end(), {{PeerId{a}, PeerId{b}}, {PeerId{b}, PeerId{a}}});
    }
    // Three chains do not divide into two subnets: a fourth shares the origin's uplink.
    EXPECT_LE(to_seconds(make_plan(request).predicted_t100), 1.35 * free_s) << to_string(topology);
    request.apart.clear();
    for (std::uint32_t a = 1; a < 12; a += 3) request.apart.push_back({PeerId{a}, PeerId{a + 1}});
    EXPECT_LE(to_seconds(make_plan(request).predicted_t100), 1.1 * free_s) << to_string(topology);
  }
}

RC_GTEST_PROP(PlanApartProperty, NoPlanUsesAnEdgeThatIsForbidden, ()) {
  PlanRequest request = any_request(*any_topology());
  const auto count = static_cast<std::uint32_t>(request.members.size());
  Plan plan = make_plan(request);
  for (int round = 0; round < 3; ++round) {
    for (int i = *rc::gen::inRange(0, 60); i > 0; --i) {
      request.apart.push_back({PeerId{*rc::gen::inRange(0u, count + 2)}, PeerId{*rc::gen::inRange(0u, count + 2)}});
    }
    // What hurts: an edge of the plan.
    const auto child = *rc::gen::inRange<std::size_t>(0, count);
    request.apart.push_back({plan.stripes[0].parents[child], plan.members[child]});
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
      request.members[*rc::gen::inRange<std::size_t>(0, count)].only_from_origin = true;
    }
    for (const Plan& made : {repair_plan(plan, request), make_plan(request)}) {
      assert_sound(made, request);
      assert_nobody_is_fed_by_who_is_apart(made, request);
      plan = made;
    }
    assert_interior_in_one_stripe(plan);
  }
}

}  // namespace
}  // namespace weightcast
