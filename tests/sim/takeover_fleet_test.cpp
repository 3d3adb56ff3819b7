// Versions that are sent while the origin takes them over, told by cores in a simulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/fleet.h"

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

/// Two workers in a chain, and versions that take 200 ms to take over, with three steps between.
struct TakeoverFleet : ChainOfTwo {
  using ChainOfTwo::ChainOfTwo;
  void SetUp() override {
    ChainOfTwo::SetUp();
    fleet.run_for(1s);  // until the links are probed
    fleet.grow_versions(4);
  }
  /// Publishes a version and waits until the last in the chain has this much of it, while it is being taken over.
  void publish_until(std::uint64_t version, std::uint32_t chunks) {
    fleet.publish(version, kChunks);
    ASSERT_TRUE(fleet.run_until(
        [&] { return b.worker->receiving() == full(version) && b.worker->intake().chunks_verified() >= chunks; }));
    ASSERT_TRUE(is_open(full(version)));
  }
};

TEST_F(TakeoverFleet, ChunksTravelDownTheChainBeforeTheVersionIsWhole) {
  publish_until(1, 50);
  EXPECT_EQ(fleet.origin().publications().latest(), Version{1});
  EXPECT_FALSE(fleet.origin().publications().progress(Version{1}).has_value()) << "nobody can have it yet";
  ASSERT_TRUE(fleet.run_until_installed(1));
  EXPECT_FALSE(is_open(full(1)));
  fleet.run_for(10ms);
  EXPECT_TRUE(fleet.origin().publications().progress(Version{1})->reached(1.0));
  EXPECT_EQ(fleet.deliveries_to("a"), kChunks) << "each once";
  EXPECT_EQ(fleet.deliveries_to("b"), kChunks);
}

TEST_F(TakeoverFleet, RefusedVersionIsForgottenByAllAndItsNumberIsFree) {
  fleet.refuse_versions(true);
  publish_until(1, 50);
  ASSERT_TRUE(fleet.run_until([&] { return fleet.origin().publications().latest() == kNoVersion; }));
  fleet.run_for(100ms);
  EXPECT_EQ(a.worker->receiving(), PayloadId{});
  EXPECT_EQ(b.worker->receiving(), PayloadId{});
  EXPECT_TRUE(a.worker->holdings().empty());
  EXPECT_FALSE(fleet.origin().publications().progress(Version{1}).has_value());
  ASSERT_TRUE(fleet.origin().publications().check_version(Version{1}).has_value());
  fleet.refuse_versions(false);
  ASSERT_TRUE(fleet.install(1, kChunks));
}

TEST_F(TakeoverFleet, AfterARefusedVersionTheOneBeforeGoesOn) {
  fleet.set_chunk_time(a, 5ms);
  fleet.set_chunk_time(fleet["origin"], 5ms);
  fleet.publish(1, kChunks);
  ASSERT_TRUE(fleet.run_until([&] { return b.worker->intake().chunks_verified() >= 50; }));
  ASSERT_FALSE(is_open(full(1)));
  fleet.refuse_versions(true);
  fleet.publish(2, kChunks);
  fleet.run_for(1ms);
  EXPECT_EQ(fleet.origin().publications().latest(), Version{2});
  ASSERT_TRUE(fleet.run_until_installed(1));
  fleet.run_for(500ms);
  EXPECT_EQ(fleet.origin().publications().latest(), Version{1});
  EXPECT_EQ(fleet.deliveries_to("b"), kChunks) << "what it had was not thrown away, and it has taken nothing else";
  EXPECT_TRUE(fleet.origin().publications().progress(Version{1})->reached(1.0));
}

TEST_F(TakeoverFleet, JoinerInTheMiddleGetsAllOfIt) {
  publish_until(1, 20);
  fleet.add("late");
  ASSERT_TRUE(fleet.run_until_installed(1));
}

TEST_F(TakeoverFleet, WorkerThatRestartsInTheMiddleGetsAllOfIt) {
  publish_until(1, 20);
  fleet.kill(b);
  fleet.run_for(20ms);
  fleet.restart(b);
  ASSERT_TRUE(fleet.run_until_installed(1));
}

TEST_F(TakeoverFleet, WorkerThatMissedTheEndHearsOfItWhenItJoinsAgain) {
  publish_until(1, 20);
  fleet.freeze(b);
  ASSERT_TRUE(fleet.run_until([&] { return !is_open(full(1)); }));
  fleet.run_for(10s);  // the origin gives it up for lost
  fleet.publish(2, kChunks);
  fleet.run_for(1s);
  fleet.thaw(b);
  ASSERT_TRUE(fleet.run_until_installed(2));
}

TEST_F(TakeoverFleet, WorkerThatMissedTheRefusalHearsOfItWhenItJoinsAgain) {
  fleet.refuse_versions(true);
  publish_until(1, 20);
  fleet.freeze(b);
  ASSERT_TRUE(fleet.run_until([&] { return fleet.origin().publications().latest() == kNoVersion; }));
  fleet.run_for(10s);
  fleet.thaw(b);
  ASSERT_TRUE(fleet.run_until([&] { return b.worker->receiving() == PayloadId{}; }));
}

struct PatchTakeoverFleet : TakeoverFleet {
  PatchTakeoverFleet() : TakeoverFleet([](PayloadId) { return 2u; }) {}
  void SetUp() override {
    TakeoverFleet::SetUp();
    publish(1);
  }
};

TEST_F(PatchTakeoverFleet, WhoCanTakeAPatchWaitsForItWhileAJoinerIsSentTheRest) {
  Fleet::Node& late = fleet.add("late");
  ASSERT_TRUE(fleet.run_until([&] { return late.installed() == Version{1}; }));
  Fleet::Node& later = fleet.add("later");
  fleet.publish(2, kChunks);
  ASSERT_TRUE(fleet.run_until([&] { return later.worker->receiving() == full(2); }));
  ASSERT_TRUE(is_open(full(2)));
  ASSERT_TRUE(fleet.run_until_installed(2));
  EXPECT_THAT(fleet.payloads_to("a"), ElementsAre(full(1), patch(1, 2)));
  EXPECT_THAT(fleet.payloads_to("later"), Contains(full(2)));
  EXPECT_THAT(fleet.payloads_to("later"), Not(Contains(patch(1, 2))));
}

TEST_F(PatchTakeoverFleet, PatchOfTheVersionBeforeIsSentWhileTheNextOneIsTakenOver) {
  fleet.grow_versions(0);
  fleet.publish(2, kChunks);
  fleet.grow_versions(100);  // 5 s
  fleet.publish(3, kChunks);
  ASSERT_TRUE(fleet.run_until_installed(2));
  EXPECT_TRUE(is_open(full(3))) << "a trainer that publishes without a pause starves nobody";
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(full(1), patch(1, 2)));
  ASSERT_TRUE(fleet.run_until_installed(3));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(full(1), patch(1, 2), patch(2, 3)));
}

TEST_F(PatchTakeoverFleet, NothingIsForgottenForAVersionThatIsRefused) {
  publish(2);
  fleet.refuse_versions(true);
  fleet.publish(3, kChunks);
  ASSERT_TRUE(
      fleet.run_until([&] { return fleet.origin().publications().latest() == Version{2} && !is_open(full(3)); }));
  fleet.refuse_versions(false);
  ASSERT_TRUE(fleet.install(3, kChunks));
  EXPECT_THAT(fleet.payloads_to("a"), ElementsAre(full(1), patch(1, 2), patch(2, 3)));
}

}  // namespace
}  // namespace weightcast::sim
