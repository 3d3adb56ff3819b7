#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/units.h"
#include "transport/core/plan/plan.h"

namespace weightcast {

/// `count` members with ids from `first_id`, all alike.
inline std::vector<PlanMember> members_of(std::uint32_t count, Rate uplink, Rate downlink, std::uint32_t first_id = 1) {
  std::vector<PlanMember> members;
  for (std::uint32_t i = 0; i < count; ++i) members.push_back({PeerId{first_id + i}, uplink, downlink, true});
  return members;
}

/// ECHO-2's setting: B = 300 Mbit/s, b = 100 Mbit/s, 64 MiB.
inline PlanRequest echo_request(std::uint32_t count, Topology topology) {
  PlanRequest request;
  request.members = members_of(count, Rate::bits(100e6), Rate::bits(100e6));
  request.origin_uplink = Rate::bits(300e6);
  request.payload_bytes = 64 * kMiB;
  request.topology = topology;
  return request;
}

/// Any rate from 1 Mbit/s to 1 Gbit/s, or none known.
inline rc::Gen<Rate> any_rate() {
  return rc::gen::weightedOneOf<Rate>(
      {{9, rc::gen::map(rc::gen::inRange(1, 1001), [](int mbit) { return Rate::bits(1e6 * mbit); })},
       {1, rc::gen::just(Rate{})}});
}

/// `count` members of any rates, of whom some cannot relay.
inline std::vector<PlanMember> any_members(std::uint32_t count, std::uint32_t first_id = 1) {
  std::vector<PlanMember> members = members_of(count, {}, {}, first_id);
  for (PlanMember& member : members) {
    member.uplink = *any_rate();
    member.downlink = *any_rate();
    member.can_relay = *rc::gen::inRange(0, 5) != 0;
  }
  return members;
}

inline PlanRequest any_request(Topology topology) {
  PlanRequest request;
  request.members = any_members(*rc::gen::inRange(1u, 60u));
  request.origin_uplink = *any_rate();
  request.payload_bytes = *rc::gen::inRange<std::uint64_t>(1, kGiB);
  request.topology = topology;
  request.hop_delay = std::chrono::microseconds(*rc::gen::inRange(0, 50'000));
  return request;
}

inline rc::Gen<Topology> any_topology() {
  return rc::gen::element(Topology::kAuto, Topology::kStar, Topology::kChain, Topology::kTree, Topology::kStriped);
}

/// What holds for every plan, new or mended: one parent per member and stripe, all of them in the plan, every way leads
/// to the origin, and nobody relays who cannot.
inline void assert_sound(const Plan& plan, const PlanRequest& request) {
  const std::size_t n = request.members.size();
  RC_ASSERT(plan.members.size() == n);
  RC_ASSERT(plan.rates.size() == n);
  RC_ASSERT(plan.finish.size() == n);
  std::map<PeerId, std::size_t> index;
  for (std::size_t i = 0; i < n; ++i) {
    RC_ASSERT(plan.members[i] == request.members[i].id);
    index[plan.members[i]] = i;
  }
  for (const StripePlan& stripe : plan.stripes) {
    RC_ASSERT(stripe.weight >= 1u);
    RC_ASSERT(stripe.weight <= 1024u);
    RC_ASSERT(stripe.parents.size() == n);
    for (std::size_t i = 0; i < n; ++i) {
      PeerId node = plan.members[i];
      for (std::size_t steps = 0; node != kOriginId; ++steps) {
        RC_ASSERT(steps <= n);
        const PeerId parent = stripe.parents[index.at(node)];
        RC_ASSERT(parent == kOriginId || (index.contains(parent) && request.members[index[parent]].can_relay));
        node = parent;
      }
    }
  }
}

/// A member has children in one stripe at most.
inline void assert_interior_in_one_stripe(const Plan& plan) {
  std::map<PeerId, std::size_t> feeds_in;
  for (std::size_t s = 0; s < plan.stripes.size(); ++s) {
    for (const PeerId parent : plan.stripes[s].parents) {
      if (parent != kOriginId) RC_ASSERT(feeds_in.emplace(parent, s).first->second == s);
    }
  }
}

}  // namespace weightcast
