#include "transport/core/origin/payload_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr Version kVersion{7};

struct PayloadPlanTest : testing::Test {
  PayloadPlanTest() {
    config.topology = Topology::kChain;
    config.uplink = Rate::bits(100e6);
    for (const char* name : {"a", "b", "c", "d"}) {
      Member& member = members.by_name(name);
      members.connect(member, ConnId{++conns});
      member.uplink = member.downlink = Rate::bits(100e6);
      member.assigned = kVersion;
      all.push_back(&member);
    }
  }
  /// Who was sent something since the last call.
  std::vector<ConnId> told() {
    std::vector<ConnId> conns_told;
    for (const auto& send : only<action::Send>(drain([&] { return actions.poll(); }))) conns_told.push_back(send.conn);
    return conns_told;
  }
  void begin() {
    for (const Member* member : all) plan.announce_to(member->id);
    plan.repair(now);
    plan.announce(now, true);
    static_cast<void>(told());
  }
  /// In the order of the chain.
  PeerId place(std::size_t i) const { return plan.plan().members.at(i); }

  OriginConfig config;
  Membership members;
  ActionQueue actions;
  Timeouts timeouts;
  Holdings holdings;
  Uploads uploads{timeouts, holdings, actions};
  RateProbes rates{members, actions, Rate{}};
  FaultAttribution faults{members, uploads, actions, rates};
  PublicationContext context{config, members, holdings, uploads, actions, rates, faults};
  Holding holding{manifest_of(kVersion, 100)};
  PayloadPlan plan{context, holding};
  std::vector<Member*> all;
  Instant now{1h};
  std::uint64_t conns = 0;
};

TEST_F(PayloadPlanTest, PlansThoseToWhomItIsAssigned) {
  members.by_name("c").assigned = {};
  plan.repair(now);
  EXPECT_EQ(plan.plan().members.size(), 3u);
  EXPECT_FALSE(plan.outdated());
  members.by_name("c").assigned = kVersion;
  EXPECT_TRUE(plan.outdated());
}

TEST_F(PayloadPlanTest, WhoHasItStaysAsARelay) {
  begin();
  Member& first = *members.find(place(0));
  first.installed = kVersion;
  first.assigned = {};
  EXPECT_FALSE(plan.takes_part(first)) << "it has it by another payload, for all that is known";
  plan.handle_holder(first.id);
  EXPECT_TRUE(plan.takes_part(first));
}

TEST_F(PayloadPlanTest, WhoWasToldOfItAndHasGoneToAnotherPayloadTakesNoPart) {
  begin();
  Member& first = *members.find(place(0));
  first.assigned = Version{8};
  EXPECT_TRUE(plan.takes_part(first)) << "it may be about to begin";
  first.receiving = Version{8};
  EXPECT_FALSE(plan.takes_part(first));
}

TEST_F(PayloadPlanTest, TellsOnlyThoseForWhomSomethingChanged) {
  begin();
  const PeerId last = place(3);
  plan.repair(now);
  EXPECT_THAT(told(), IsEmpty());
  plan.handle_failed(place(2));
  plan.repair(now);
  EXPECT_THAT(told(), ElementsAre(members.find(last)->conn));
}

TEST_F(PayloadPlanTest, WhoseConnectionIsGoneIsNotToldAnyMore) {
  begin();
  (void)plan.handle_disconnected(place(1));
  plan.tell_all({});
  EXPECT_EQ(told().size(), 3u);
}

TEST_F(PayloadPlanTest, LeafOfThisPayloadFeedsNobody) {
  begin();
  const PeerId relay = place(0);
  ASSERT_TRUE(
      faults.handle_report(now, plan.plan(), {kVersion, place(1), relay, 0, wire::FAULT_KIND_CLOSED, false, {}}));
  plan.repair(now);
  EXPECT_FALSE(is_relay(plan.plan(), relay));
}

}  // namespace
}  // namespace weightcast
