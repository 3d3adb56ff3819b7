#include "transport/core/origin/publication.h"

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

struct PublicationTest : testing::Test {
  PublicationTest() {
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
    for (const Member* member : all) publication.announce_to(member->id);
    publication.repair(now);
    publication.announce(now, true);
    static_cast<void>(told());
  }
  /// In the order of the chain.
  PeerId place(std::size_t i) const { return publication.plan().members.at(i); }

  OriginConfig config;
  Membership members;
  ActionQueue actions;
  Timeouts timeouts;
  Holdings holdings;
  Uploads uploads{timeouts, holdings, actions};
  RateProbes rates{members, actions, Rate{}};
  FaultAttribution faults{members, uploads, actions, rates};
  PublicationHistory history;
  PublicationContext context{config, members, actions, faults, history, rates};
  Holding holding{manifest_of(kVersion, 100)};
  Publication publication{context, holding};
  std::vector<Member*> all;
  Instant now{1h};
  std::uint64_t conns = 0;
};

TEST_F(PublicationTest, PlansThoseToWhomItIsAssigned) {
  members.by_name("c").assigned = {};
  publication.repair(now);
  EXPECT_EQ(publication.plan().members.size(), 3u);
  EXPECT_FALSE(publication.outdated());
  members.by_name("c").assigned = kVersion;
  EXPECT_TRUE(publication.outdated());
}

TEST_F(PublicationTest, WhoHasItStaysAsARelay) {
  begin();
  Member& first = *members.find(place(0));
  first.installed = kVersion;
  first.assigned = {};
  EXPECT_FALSE(publication.takes_part(first)) << "it has it by another payload, for all that is known";
  publication.handle_holder(first.id);
  EXPECT_TRUE(publication.takes_part(first));
}

TEST_F(PublicationTest, WhoWasToldOfItAndHasGoneToAnotherPayloadTakesNoPart) {
  begin();
  Member& first = *members.find(place(0));
  first.assigned = Version{8};
  EXPECT_TRUE(publication.takes_part(first)) << "it may be about to begin";
  first.receiving = Version{8};
  EXPECT_FALSE(publication.takes_part(first));
}

TEST_F(PublicationTest, TellsOnlyThoseForWhomSomethingChanged) {
  begin();
  const PeerId last = place(3);
  publication.repair(now);
  EXPECT_THAT(told(), IsEmpty());
  publication.handle_failed(place(2));
  publication.repair(now);
  EXPECT_THAT(told(), ElementsAre(members.find(last)->conn));
}

TEST_F(PublicationTest, WhoseConnectionIsGoneIsNotToldAnyMore) {
  begin();
  (void)publication.handle_disconnected(place(1));
  publication.tell_all({});
  EXPECT_EQ(told().size(), 3u);
}

TEST_F(PublicationTest, LeafOfThisPublicationFeedsNobody) {
  begin();
  const PeerId relay = place(0);
  ASSERT_TRUE(faults.handle_report(now, publication.plan(),
                                   {kVersion, place(1), relay, 0, wire::FAULT_KIND_CLOSED, false, {}}));
  publication.repair(now);
  EXPECT_FALSE(is_relay(publication.plan(), relay));
}

}  // namespace
}  // namespace weightcast
