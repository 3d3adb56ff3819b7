#include "transport/core/origin/members/membership.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

using namespace std::chrono_literals;

const auto anyone = [](PeerId) { return true; };

TEST(Membership, LostMemberIsFoundAgainByItsNameUntilItIsForgotten) {
  Membership members;
  Member& a = members.by_name("a");
  const PeerId before = a.id;
  a.installed = Version{1};
  a.heard_at = Instant{1h};
  (void)members.forget_lost(Instant{1h + Membership::kKeepLost / 2}, anyone);
  EXPECT_EQ(members.by_name("a").id, before);
  (void)members.forget_lost(Instant{1h + Membership::kKeepLost}, anyone);
  EXPECT_TRUE(members.all().empty());
  EXPECT_GT(members.by_name("a").id, before) << "a number is never used again";
}

TEST(Membership, StrangerIsForgottenSoonerAndDisplacesNobodyWhoHasServed) {
  Membership members;
  members.by_name("served").installed = Version{1};
  for (std::size_t i = 0; i < 2 * Membership::kLostMax; ++i) {
    members.by_name("stranger" + std::to_string(i)).heard_at = Instant{1s};
  }
  const auto next = members.forget_lost(Instant{2s}, anyone);
  EXPECT_EQ(members.all().size(), Membership::kStrangersMax + 1);
  ASSERT_TRUE(next);
  EXPECT_EQ(*next, Instant{1s} + Membership::kKeepStranger);
  (void)members.forget_lost(*next, anyone);
  ASSERT_EQ(members.all().size(), 1u);
  EXPECT_EQ(members.all().begin()->second.name, "served");
}

TEST(Membership, ConnectedAndNeededMembersStay) {
  Membership members;
  members.connect(members.by_name("connected"), ConnId{1});
  const PeerId planned = members.by_name("planned").id;
  (void)members.by_name("lost");
  (void)members.forget_lost(Instant{100h}, [&](PeerId id) { return id != planned; });
  EXPECT_EQ(members.all().size(), 2u);
  EXPECT_NE(members.by_conn(ConnId{1}), nullptr);
}

TEST(Membership, WhoForwardedBadlyIsRememberedWhileThereIsRoom) {
  Membership members;
  PeerStandingRecord barred;
  barred.corrupt = PeerStanding::kCorruptToBar;
  const PeerId bad = members.by_name("bad").id;
  members.by_name("bad").standing = PeerStanding(barred);
  for (std::size_t i = 0; i < 10; ++i) (void)members.by_name("good" + std::to_string(i));
  (void)members.forget_lost(Instant{100h}, anyone);
  ASSERT_EQ(members.all().size(), 1u);
  EXPECT_EQ(members.all().begin()->first, bad);
  for (std::size_t i = 0; i < 2 * Membership::kLostMax; ++i) {
    Member& member = members.by_name("bad" + std::to_string(i));
    member.standing = PeerStanding(barred);
    member.heard_at = Instant{100h + std::chrono::seconds(i)};
  }
  (void)members.forget_lost(Instant{200h}, anyone);
  EXPECT_EQ(members.all().size(), Membership::kLostMax);
  EXPECT_EQ(members.find(bad), nullptr) << "the longest lost go first";
}

// A heartbeat from before the end of a download may come last.
TEST(Membership, NobodyReceivesWhatIsInstalled) {
  Member member;
  member.conn = ConnId{1};
  member.receiving = Version{7};
  member.chunks_verified = 45, member.chunks_total = 100;
  EXPECT_EQ(member.state(Version{7}), MemberState::kReceiving);
  EXPECT_TRUE(member.is_receiving());
  member.installed = Version{7};
  EXPECT_FALSE(member.is_receiving());
  EXPECT_EQ(member.state(Version{7}), MemberState::kIdle);
  EXPECT_EQ(member.state(Version{8}), MemberState::kStale);
  member.receiving = Version{8};
  EXPECT_TRUE(member.is_receiving());
  member.conn = {};
  EXPECT_FALSE(member.is_receiving()) << "nobody knows what it does";
  EXPECT_EQ(member.state(Version{8}), MemberState::kLost);
}

}  // namespace
}  // namespace weightcast
