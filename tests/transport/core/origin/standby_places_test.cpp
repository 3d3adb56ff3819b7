#include "transport/core/origin/members/standby_places.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

struct StandbyPlacesTest : testing::Test {
  Membership members;
  StandbyPlaces places{members};
  std::uint64_t conns = 0;

  Member* join(const std::string& name, bool as_standby = false) {
    Member& member = members.by_name(name);
    members.connect(member, ConnId{++conns});
    return places.handle_joined(member, as_standby);
  }
  Member* lose(const std::string& name, bool served = true) {
    Member& member = members.by_name(name);
    const bool was_active = member.active();
    members.disconnect(member);
    return places.handle_lost(member, was_active && served);
  }
  bool waits(const std::string& name) { return members.by_name(name).standby; }
};

TEST_F(StandbyPlacesTest, FirstStandbyMemberTakesTheLostOnesPlace) {
  join("a"), join("s", true), join("t", true);
  EXPECT_EQ(lose("a"), &members.by_name("s"));
  EXPECT_FALSE(waits("s"));
  EXPECT_TRUE(waits("t"));
}

TEST_F(StandbyPlacesTest, StandbyMemberThatJoinsLaterTakesIt) {
  join("a");
  EXPECT_EQ(lose("a"), nullptr);
  join("s", true), join("t", true);
  EXPECT_FALSE(waits("s"));
  EXPECT_TRUE(waits("t"));
}

TEST_F(StandbyPlacesTest, StrangerThatComesAndGoesCostsNone) {
  join("s", true), join("stranger");
  EXPECT_EQ(lose("stranger", false), nullptr);
  EXPECT_TRUE(waits("s"));
}

TEST_F(StandbyPlacesTest, LossOfAWaitingOneCostsNoOther) {
  join("a"), join("s", true), join("t", true);
  EXPECT_EQ(lose("s"), nullptr);
  EXPECT_TRUE(waits("t"));
  join("s", true);
  EXPECT_TRUE(waits("s"));
}

TEST_F(StandbyPlacesTest, NextTakesThePlaceOfOneThatHadTakenIt) {
  join("a"), join("s", true), join("t", true);
  lose("a");
  EXPECT_EQ(lose("s"), &members.by_name("t"));
  join("s", true);
  EXPECT_TRUE(waits("s")) << "there was one place, and that is taken";
  EXPECT_EQ(join("a"), &members.by_name("t"));
  EXPECT_TRUE(waits("t"));
}

TEST_F(StandbyPlacesTest, StandbyMemberThatRejoinsKeepsThePlaceThatNobodyElseTook) {
  join("a"), join("s", true);
  lose("a"), lose("s");
  join("s", true);
  EXPECT_FALSE(waits("s"));
  join("s", true);
  EXPECT_FALSE(waits("s")) << "also when its connection was made anew and the loss of the old one was not noticed";
}

TEST_F(StandbyPlacesTest, CommandsHoldWhenTheMemberJoinsAgain) {
  join("a"), join("s", true);
  EXPECT_TRUE(places.handle_command(members.by_name("a"), false));
  EXPECT_TRUE(places.handle_command(members.by_name("s"), true));
  EXPECT_FALSE(places.handle_command(members.by_name("s"), true)) << "it serves already";
  EXPECT_TRUE(waits("a"));
  EXPECT_FALSE(waits("s"));
  lose("a"), lose("s", false);
  join("a"), join("s", true);
  EXPECT_TRUE(waits("a"));
  EXPECT_FALSE(waits("s"));
}

TEST_F(StandbyPlacesTest, AReleasedMemberIsASpareOne) {
  join("a"), join("b");
  places.handle_command(members.by_name("b"), false);
  EXPECT_EQ(lose("a"), &members.by_name("b"));
}

TEST_F(StandbyPlacesTest, AnActivatedStandInStepsBackForNobody) {
  join("a"), join("s", true);
  lose("a");
  EXPECT_FALSE(places.handle_command(members.by_name("s"), true));
  EXPECT_EQ(join("a"), nullptr);
  EXPECT_FALSE(waits("s"));
}

TEST_F(StandbyPlacesTest, WhileSomebodyProvisionsNobodyIsPromoted) {
  join("a"), join("b"), join("s", true);
  lose("a");
  EXPECT_FALSE(waits("s"));
  places.set_provisioned(true);
  EXPECT_EQ(join("a"), nullptr) << "nor does a stand-in step back";
  EXPECT_FALSE(waits("s"));
  join("t", true);
  EXPECT_EQ(lose("b"), nullptr);
  EXPECT_TRUE(waits("t"));
  EXPECT_TRUE(places.handle_command(members.by_name("t"), true));
  places.set_provisioned(false);
  join("u", true);
  EXPECT_EQ(lose("a"), &members.by_name("u"));
}

TEST_F(StandbyPlacesTest, PlaceOfAForgottenMemberIsKeptByItsTaker) {
  join("a"), join("s", true), join("t", true);
  lose("a");
  (void)members.forget_lost(Instant{std::chrono::hours(100)}, [](PeerId) { return true; });
  places.forget_lost();
  join("a");
  EXPECT_FALSE(waits("s"));
  EXPECT_EQ(lose("a"), &members.by_name("t"));
}

}  // namespace
}  // namespace weightcast
