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
    publication.announce(true);
    static_cast<void>(told());
  }
  /// In the order of the chain.
  PeerId place(std::size_t i) const { return publication.plan().members.at(i); }

  OriginConfig config;
  Membership members;
  ActionQueue actions;
  PublicationContext context{config, members, actions};
  Publication publication{context, manifest_of(kVersion, 100)};
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
  publication.handle_gone(place(1));
  publication.tell_all({});
  EXPECT_EQ(told().size(), 3u);
}

TEST_F(PublicationTest, DemotedRelayIsPlannedAsALeaf) {
  begin();
  const PeerId relay = place(0);
  EXPECT_TRUE(publication.demote(relay));
  EXPECT_FALSE(publication.demote(relay)) << "it is one already";
  publication.repair(now);
  for (const PeerId member : publication.plan().members) {
    EXPECT_THAT(publication.parents_of(member), testing::Not(testing::Contains(relay)));
  }
}

TEST_F(PublicationTest, RelaysAreNotDemotedWhereMostSeemToFail) {
  begin();
  EXPECT_TRUE(publication.demote(place(0)));
  EXPECT_TRUE(publication.demote(place(1)));
  EXPECT_FALSE(publication.demote(place(2)));
}

TEST_F(PublicationTest, LeafNeedsAnotherWitnessAgainstItsParent) {
  begin();
  EXPECT_EQ(publication.blame_slow(place(1), place(0)), place(0)) << "it feeds others, which wait";
  EXPECT_EQ(publication.blame_slow(place(3), place(2)), std::nullopt);
  EXPECT_EQ(publication.blame_slow(place(3), place(2)), std::nullopt) << "the same once more";
}

TEST_F(PublicationTest, WhoFailsItsOwnChildrenIsNoWitnessNorASecondOne) {
  begin();
  EXPECT_TRUE(publication.demote(place(1)));
  EXPECT_EQ(publication.blame_slow(place(1), place(2)), std::nullopt);
  EXPECT_EQ(publication.blame_slow(place(3), place(2)), std::nullopt) << "a leaf, and the first whose word counts";
}

TEST_F(PublicationTest, WhoCallsTwoParentsSlowIsSlowItself) {
  begin();
  EXPECT_EQ(publication.blame_slow(place(1), place(0)), place(0));
  EXPECT_EQ(publication.blame_slow(place(1), kOriginId), place(1));
  EXPECT_EQ(publication.blame_slow(place(2), kOriginId), std::nullopt) << "nobody can blame the origin";
}

TEST_F(PublicationTest, RelayThatIsFedSlowlyIsPassedBy) {
  begin();
  EXPECT_FALSE(publication.pass_by(place(3), place(2))) << "nobody waits behind a leaf";
  const PeerId relay = place(1);
  EXPECT_TRUE(publication.pass_by(relay, place(0)));
  publication.repair(now);
  EXPECT_FALSE(publication.relays(relay));
}

TEST_F(PublicationTest, OriginThatIsSlowItselfPassesByOneRelayAtMost) {
  begin();
  for (int i = 0; i < 4; ++i) {
    const auto& members_now = publication.plan().members;
    const auto first = std::ranges::find_if(members_now, [&](PeerId member) {
      return publication.relays(member) && testing::Value(publication.parents_of(member), ElementsAre(kOriginId));
    });
    ASSERT_NE(first, members_now.end());
    (void)publication.blame_slow(*first, kOriginId);
    EXPECT_EQ(publication.pass_by(*first, kOriginId), i == 0) << "or else it would feed ever more of them";
    publication.repair(now);
  }
}

}  // namespace
}  // namespace weightcast
