// Versions that are published by their patches alone, told by cores in a simulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/fleet.h"

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

/// Two workers in a chain that have version 1, which came whole. What follows is published by patches of two chunks.
struct PublishedPatchFleet : ChainOfTwo {
  PublishedPatchFleet() : ChainOfTwo([](PayloadId) { return 2u; }) {}
  void SetUp() override {
    ChainOfTwo::SetUp();
    fleet.run_for(1s);  // until the links are probed
    ASSERT_TRUE(fleet.install(1, kChunks));
    fleet.publish_by_patches(true);
  }
  void publish_until(std::uint64_t version) {
    for (std::uint64_t v = fleet.origin().publications().latest().value + 1; v <= version; ++v) publish(v);
  }
  bool holds(PayloadId payload) { return fleet.origin().holdings().contains(payload); }
};

TEST_F(PublishedPatchFleet, WhoHasTheBaseGetsThePatchAndNothingElseIsMade) {
  publish_until(3);
  EXPECT_THAT(fleet.payloads_to("a"), ElementsAre(full(1), patch(1, 2), patch(2, 3)));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(full(1), patch(1, 2), patch(2, 3)));
  EXPECT_FALSE(holds(full(2)) || holds(full(3)));
  EXPECT_TRUE(fleet.origin().publications().progress(Version{3})->reached(1.0));
  EXPECT_EQ(fleet.origin().publications().progress(Version{3})->kind, PayloadKind::kPatch);
}

TEST_F(PublishedPatchFleet, JoinerGetsAnOlderFullPayloadWhereSmallPatchesLeadOn) {
  publish_until(2);
  Fleet::Node& late = fleet.add("late");
  ASSERT_TRUE(fleet.run_until([&] { return late.installed() == Version{2}; }));
  EXPECT_THAT(fleet.payloads_to("late"), ElementsAre(full(1), patch(1, 2)));
  EXPECT_FALSE(holds(full(2)));
}

TEST_F(PublishedPatchFleet, JoinerGetsTheFullPayloadThatIsMadeForItWhileItIsMade) {
  publish_until(4);
  EXPECT_FALSE(holds(full(1)));
  fleet.grow_versions(4);
  Fleet::Node& late = fleet.add("late");
  ASSERT_TRUE(fleet.run_until([&] { return late.worker->intake().chunks_verified() >= 40; }));
  EXPECT_TRUE(is_open(full(4)));
  ASSERT_TRUE(fleet.run_until([&] { return late.installed() == Version{4}; }));
  EXPECT_THAT(fleet.payloads_to("late"), ElementsAre(full(4)));
  Fleet::Node& later = fleet.add("later");
  ASSERT_TRUE(fleet.run_until([&] { return later.installed() == Version{4}; }));
  EXPECT_EQ(fleet.deliveries_to("later"), kChunks) << "it is made once";
}

TEST_F(PublishedPatchFleet, JoinerInTheMiddleOfAPublicationWaitsForTheFullPayloadAlone) {
  publish_until(4);
  fleet.grow_versions(0);
  fleet.publish(5, kChunks);
  fleet.add("late");
  ASSERT_TRUE(fleet.run_until_installed(5));
  EXPECT_THAT(fleet.payloads_to("a").back(), patch(4, 5));
  EXPECT_THAT(fleet.payloads_to("late"), ElementsAre(full(5)));
}

TEST_F(PublishedPatchFleet, SlowHashingEndsThoughNextVersionsComeAndIsBegunOnce) {
  publish_until(4);
  fleet.grow_versions(100);  // 5 s
  Fleet::Node& late = fleet.add("late");
  ASSERT_TRUE(fleet.run_until([&] { return late.worker->receiving() == full(4); }));
  fleet.grow_versions(0);
  for (std::uint64_t version = 5; version <= 8; ++version) {
    fleet.publish(version, kChunks);
    ASSERT_TRUE(fleet.run_until([&] { return b.installed() == Version{version}; }));
    EXPECT_TRUE(is_open(full(4))) << version;
  }
  fleet.grow_versions(100);
  ASSERT_TRUE(fleet.run_until_installed(8));
  EXPECT_THAT(fleet.payloads_to("late"), ElementsAre(full(4), patch(4, 8))) << "its base stayed for the hashing";
  for (std::uint64_t version = 5; version <= 8; ++version) EXPECT_FALSE(holds(full(version))) << version;
}

TEST_F(PublishedPatchFleet, SleeperTakesTenPatchesInTurn) {
  publish_until(2);
  fleet.kill(b);
  publish_until(12);
  fleet.restart(b);
  ASSERT_TRUE(fleet.run_until_installed(12));
  const std::vector<PayloadId> taken = fleet.payloads_to("b");
  ASSERT_EQ(taken.size(), 12u);
  EXPECT_EQ(taken.back(), patch(11, 12));
  EXPECT_FALSE(holds(full(12)));
}

TEST_F(PublishedPatchFleet, WhoLostItsBaseGetsTheLatestVersionWhole) {
  fleet.disk(b).damages_bases = true;
  ASSERT_TRUE(fleet.install(2, kChunks));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(full(1), patch(1, 2), full(2)));
}

TEST_F(PublishedPatchFleet, AfterARestartTheOriginHasThePatchesAndMakesTheFullPayloadAgain) {
  publish_until(4);
  fleet.kill(b);
  Fleet::Node& origin = fleet[chain_config().name];
  fleet.kill(origin);
  fleet.run_for(10ms);
  fleet.restart(origin);
  EXPECT_EQ(fleet.origin().publications().latest(), Version{4});
  EXPECT_TRUE(holds(patch(3, 4)));
  EXPECT_FALSE(holds(full(4)));
  ASSERT_TRUE(fleet.run_until([&] { return a.worker->joined(); }));
  fleet.publish(5, kChunks);
  fleet.restart(b);
  Fleet::Node& late = fleet.add("late");
  ASSERT_TRUE(fleet.run_until(
      [&] { return a.installed() == Version{5} && b.installed() == Version{5} && late.installed() == Version{5}; }));
  EXPECT_EQ(fleet.payloads_to("a").back(), patch(4, 5));
  EXPECT_EQ(fleet.payloads_to("b").back(), patch(4, 5));
}

TEST_F(PublishedPatchFleet, FullVersionsAndPatchesMix) {
  publish_until(3);
  fleet.publish_by_patches(false);
  publish_until(4);
  fleet.publish_by_patches(true);
  publish_until(6);
  EXPECT_THAT(fleet.payloads_to("b"),
              ElementsAre(full(1), patch(1, 2), patch(2, 3), patch(3, 4), patch(4, 5), patch(5, 6)));
  EXPECT_FALSE(holds(full(5)) || holds(full(6)));
}

}  // namespace
}  // namespace weightcast::sim
