#include "transport/core/origin/members/peer_standing.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weightcast {
namespace {

void faulty(PeerStanding& peer, PeerFault fault = PeerFault::kSlow, int complaints = 1) {
  for (int i = 0; i < complaints; ++i) peer.handle_fault(fault);
  peer.handle_publication_end(true);
}

void clean(PeerStanding& peer, std::uint32_t times) {
  for (std::uint32_t i = 0; i < times; ++i) peer.handle_publication_end(true);
}

PeerStanding demoted_to_tail() {
  PeerStanding peer;
  faulty(peer);
  faulty(peer);
  return peer;
}

TEST(PeerStanding, LosesTheSeedPlaceFirstAndForwardingNext) {
  PeerStanding peer;
  faulty(peer);
  EXPECT_EQ(peer.standing(), Standing::kSeed);
  faulty(peer);
  EXPECT_EQ(peer.standing(), Standing::kTail);
  faulty(peer);
  faulty(peer);
  EXPECT_EQ(peer.standing(), Standing::kRolloutOnly);
  faulty(peer);
  faulty(peer);
  EXPECT_EQ(peer.standing(), Standing::kRolloutOnly);
}

TEST(PeerStanding, FaultThatMayBeItsLinkTakesItToTheTailAndNoFurther) {
  PeerStanding peer;
  const auto slow = [&] {
    peer.handle_fault(PeerFault::kSlow, Standing::kTail);
    peer.handle_publication_end(true);
  };
  for (int i = 0; i < 10; ++i) slow();
  EXPECT_EQ(peer.standing(), Standing::kTail);
  EXPECT_EQ(peer.clean_needed(), PeerStanding::kCleanMin) << "it was demoted once";
  slow();
  peer.handle_fault(PeerFault::kSlow, Standing::kTail);
  faulty(peer);
  EXPECT_EQ(peer.standing(), Standing::kRolloutOnly) << "the gravest fault of a publication counts";
}

TEST(PeerStanding, ChangesOnlyWhenAPublicationEndsAndByOneStrikeHoweverManyComplain) {
  PeerStanding peer;
  for (int i = 0; i < 50; ++i) peer.handle_fault(PeerFault::kClosed);
  EXPECT_EQ(peer.standing(), Standing::kSeed);
  peer.handle_publication_end(true);
  EXPECT_EQ(peer.standing(), Standing::kSeed);
  EXPECT_EQ(peer.record().strikes, 1u);
}

TEST(PeerStanding, ForgivesAStrikeForACleanPublication) {
  PeerStanding peer;
  for (int i = 0; i < 20; ++i) {
    faulty(peer);
    clean(peer, 1);
  }
  EXPECT_EQ(peer.standing(), Standing::kSeed);
}

TEST(PeerStanding, ComesBackAfterCleanPublicationsInARow) {
  PeerStanding peer = demoted_to_tail();
  clean(peer, PeerStanding::kCleanMin - 1);
  faulty(peer);
  clean(peer, PeerStanding::kCleanMin - 1);
  EXPECT_EQ(peer.standing(), Standing::kTail);
  clean(peer, 1);
  EXPECT_EQ(peer.standing(), Standing::kSeed);
}

TEST(PeerStanding, EarnsNothingByPublicationsThatItDidNotReceive) {
  PeerStanding peer = demoted_to_tail();
  for (int i = 0; i < 100; ++i) peer.handle_publication_end(false);
  EXPECT_EQ(peer.standing(), Standing::kTail);
}

TEST(PeerStanding, NeedsTwiceAsLongAfterEachDemotion) {
  PeerStanding peer = demoted_to_tail();
  for (const std::uint32_t needed : {4u, 8u, 16u, 32u, 64u, 64u}) {
    EXPECT_EQ(peer.clean_needed(), needed);
    clean(peer, needed);
    EXPECT_EQ(peer.standing(), Standing::kSeed);
    faulty(peer);
    faulty(peer);
    EXPECT_EQ(peer.standing(), Standing::kTail);
  }
}

TEST(PeerStanding, IsBarredAfterTwoPublicationsWithDamagedBytesAndNotForEver) {
  PeerStanding peer;
  faulty(peer, PeerFault::kCorrupt, 5);
  EXPECT_FALSE(peer.barred()) << "all children of one publication complain at once";
  clean(peer, 100);
  faulty(peer, PeerFault::kCorrupt);
  EXPECT_TRUE(peer.barred());
  EXPECT_EQ(peer.standing(), Standing::kRolloutOnly);
  for (int i = 0; i < 10'000; ++i) peer.handle_publication_end(false);
  clean(peer, PeerStanding::kCleanBarred - 1);
  EXPECT_EQ(peer.standing(), Standing::kRolloutOnly);
  clean(peer, 1);
  EXPECT_EQ(peer.standing(), Standing::kTail);
  faulty(peer, PeerFault::kCorrupt);
  EXPECT_TRUE(peer.barred()) << "it is known";
}

TEST(PeerStanding, SurvivesARestartAndTamesARecordThatIsNotPlausible) {
  const PeerStanding peer = demoted_to_tail();
  EXPECT_EQ(PeerStanding(peer.record()).record(), peer.record());
  const PeerStanding odd(PeerStandingRecord{.standing = static_cast<Standing>(77), .strikes = 1000});
  EXPECT_EQ(odd.standing(), Standing::kRolloutOnly);
  EXPECT_LT(odd.record().strikes, PeerStanding::kStrikesToDemote);
  EXPECT_EQ(PeerStanding(PeerStandingRecord{.corrupt = 2}).standing(), Standing::kRolloutOnly);
}

RC_GTEST_PROP(PeerStanding, MovesByOneStepPerPublicationUnlessBarred, ()) {
  PeerStanding peer;
  for (const int fault : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 6))) {
    const int before = static_cast<int>(peer.standing());
    if (fault < 3) peer.handle_fault(static_cast<PeerFault>(fault));
    peer.handle_publication_end(fault != 5);
    const int moved = static_cast<int>(peer.standing()) - before;
    RC_ASSERT(peer.barred() || (moved >= -1 && moved <= 1));
    RC_ASSERT(!peer.barred() || peer.standing() == Standing::kRolloutOnly);
    RC_ASSERT(peer.record().strikes < PeerStanding::kStrikesToDemote);
  }
}

TEST(RankPeers, SortsByStandingThenScoreInStepsThenJoining) {
  std::vector<RankedPeer> peers{{PeerId{1}, Standing::kTail, 1.0},         {PeerId{2}, Standing::kSeed, 0.81},
                                {PeerId{3}, Standing::kSeed, 0.80},        {PeerId{4}, Standing::kSeed, 0.95},
                                {PeerId{5}, Standing::kRolloutOnly, 0.99}, {PeerId{6}, Standing::kSeed, 0.79}};
  rank_peers(peers);
  std::vector<std::uint32_t> order;
  for (const RankedPeer& peer : peers) order.push_back(peer.id.value);
  EXPECT_EQ(order, (std::vector<std::uint32_t>{4, 2, 3, 6, 1, 5}));
}

}  // namespace
}  // namespace weightcast
