// Whole stories of versions that are sent as patches, told by cores in a simulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/fleet.h"

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Two for a step, and less for a fold than for the steps that it stands for.
std::uint32_t chunks_of_patch(PayloadId p) { return std::uint32_t(1 + p.version.value - p.base.value); }

struct PatchFleet : ChainOfTwo {
  PatchFleet() : ChainOfTwo(chunks_of_patch) {}
  void SetUp() override {
    ChainOfTwo::SetUp();
    fleet.run_for(1s);  // until the links are probed
    publish(1);
  }
};

TEST_F(PatchFleet, StepTravelsAsAPatchFromParentToChild) {
  publish(2);
  EXPECT_THAT(fleet.payloads_to("a"), ElementsAre(full(1), patch(1, 2)));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(full(1), patch(1, 2)));
  const auto from_a = std::ranges::count_if(fleet.deliveries(), [](const Fleet::Arrival& d) {
    return d.from == "a" && d.to == "b" && d.payload == patch(1, 2);
  });
  EXPECT_GT(from_a, 0) << "a relay forwards patches too";
  EXPECT_EQ(fleet.origin().publications().progress(Version{2})->kind, PayloadKind::kPatch);
}

TEST_F(PatchFleet, JoinerGetsTheFullPayloadWhileOthersGetThePatch) {
  Fleet::Node& late = fleet.add("late");
  publish(2);
  EXPECT_THAT(fleet.payloads_to("late"), Not(Contains(patch(1, 2))));
  EXPECT_EQ(late.installed(), Version{2});
  publish(3);
  EXPECT_THAT(fleet.payloads_to("late"), Contains(patch(2, 3)));
}

TEST_F(PatchFleet, JoinerIsNotFedByWhoHasOnlyThePatch) {
  publish(2);
  fleet.add("late");
  ASSERT_TRUE(fleet.run_until_installed(2));
  for (const Fleet::Arrival& d : fleet.deliveries()) {
    if (d.payload == full(2)) {
      EXPECT_EQ(d.from, "origin");
    }
  }
  EXPECT_EQ(fleet.member("a").score.record(fleet.origin_now()).failed, 0u) << "nobody was sent to it in vain";
}

TEST_F(PatchFleet, WorkerThatIsTwoVersionsBehindGetsOneFold) {
  fleet.kill(a);
  publish(2);
  fleet.restart(a);
  ASSERT_TRUE(fleet.run_until_installed(2));
  fleet.kill(a);
  fleet.publish(3, kChunks);
  ASSERT_TRUE(fleet.run_until([&] { return b.installed() == Version{3}; }));
  fleet.run_for(10ms);
  fleet.publish(4, kChunks);
  ASSERT_TRUE(fleet.run_until([&] { return b.installed() == Version{4}; }));
  fleet.restart(a);
  ASSERT_TRUE(fleet.run_until_installed(4));
  // Two versions are kept, 3 and 4: what leads from 2 is the chain of stored patches.
  EXPECT_THAT(fleet.payloads_to("a"), ElementsAre(full(1), patch(1, 2), patch(2, 3), patch(3, 4)));
}

TEST(PatchFleetKept, WorkerThatIsBehindGetsOneFoldFromAVersionThatIsKept) {
  OriginConfig config;
  config.versions_kept = 4;
  Fleet fleet(config, chunks_of_patch);
  Fleet::Node& a = fleet.add("a");
  Fleet::Node& b = fleet.add("b");
  ASSERT_TRUE(fleet.run_until([&] { return a.worker->joined() && b.worker->joined(); }));
  ASSERT_TRUE(fleet.install(1, kChunks));
  fleet.kill(a);
  for (std::uint64_t version = 2; version <= 4; ++version) {
    ASSERT_TRUE(fleet.install(version, kChunks));
  }
  fleet.restart(a);
  ASSERT_TRUE(fleet.run_until_installed(4));
  EXPECT_THAT(fleet.payloads_to("a"), ElementsAre(full(1), patch(1, 4)));
}

TEST_F(PatchFleet, WorkerWithADamagedBaseIsGivenTheFullPayloadAndTakesPatchesAgain) {
  fleet.disk(a).damages_bases = true;
  ASSERT_TRUE(fleet.install(2, kChunks));
  EXPECT_THAT(fleet.payloads_to("a"), ElementsAre(full(1), patch(1, 2), full(2)));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(full(1), patch(1, 2)));
  fleet.disk(a).damages_bases = false;
  publish(3);
  EXPECT_THAT(fleet.payloads_to("a"), Contains(patch(2, 3)));
}

TEST_F(PatchFleet, DamagedBaseIsToldAgainWhenTheOriginDidNotHearOfIt) {
  fleet.disk(a).damages_bases = true;
  fleet.publish(2, kChunks);
  ASSERT_TRUE(fleet.run_until([&] { return !a.worker->last_error().empty(); }));
  fleet.kill(b);
  fleet.restart(b);
  ASSERT_TRUE(fleet.run_until_installed(2));
  EXPECT_EQ(a.installed(), Version{2});
}

TEST_F(PatchFleet, SupersededFullPayloadIsGivenUpForAPatchOfFewerBytes) {
  // Version 2 changes everything; before a has much of it, version 3 is out, which differs little from version 1.
  OriginConfig c;
  Fleet other(c, [](PayloadId p) { return p == patch(1, 3) ? 2u : 0u; });
  Fleet::Node& w = other.join("w");
  ASSERT_TRUE(other.install(1, kChunks));
  other.publish(2, kChunks);
  ASSERT_TRUE(other.run_until([&] { return w.worker->intake().chunks_verified() > 5; }));
  ASSERT_TRUE(other.install(3, kChunks));
  EXPECT_THAT(other.payloads_to("w"), ElementsAre(full(1), full(2), patch(1, 3)));
  EXPECT_THAT(w.log, Contains(HasSubstr("fewer bytes")));
  EXPECT_LT(other.deliveries_to("w"), 2 * kChunks);
}

TEST_F(PatchFleet, PayloadThatIsNearlyCompleteIsFinishedFirst) {
  OriginConfig c;
  Fleet other(c, [](PayloadId p) { return p == patch(1, 3) ? 20u : p == patch(2, 3) ? 2u : 0u; });
  Fleet::Node& w = other.join("w");
  ASSERT_TRUE(other.install(1, kChunks));
  other.publish(2, kChunks);
  ASSERT_TRUE(other.run_until([&] { return w.worker->intake().chunks_verified() > 90; }));
  ASSERT_TRUE(other.install(3, kChunks));
  EXPECT_THAT(other.payloads_to("w"), ElementsAre(full(1), full(2), patch(2, 3)));
}

TEST_F(PatchFleet, VersionOfWhichNoPatchIsWorthItTravelsWhole) {
  Fleet other(chain_config(), [](PayloadId) { return 0u; });
  Fleet::Node& w = other.join("w");
  for (std::uint64_t version = 1; version <= 2; ++version) {
    ASSERT_TRUE(other.install(version, kChunks));
  }
  EXPECT_THAT(other.payloads_to("w"), ElementsAre(full(1), full(2)));
  EXPECT_EQ(w.installed(), Version{2});
}

TEST_F(PatchFleet, PublicationIsUndecidedUntilThePatchIsMade) {
  fleet.publish(2, kChunks);
  EXPECT_TRUE(fleet.origin().publications().progress(Version{2})->undecided);
  ASSERT_TRUE(fleet.run_until_installed(2));
  EXPECT_FALSE(fleet.origin().publications().progress(Version{2})->undecided);
}

TEST_F(PatchFleet, VersionThatAWorkerIsStillReceivingIsKept) {
  OriginConfig c;
  c.versions_kept = 1;
  Fleet other(c, [](PayloadId) { return 0u; });
  Fleet::Node& w = other.add("w");
  Fleet::Node& fast = other.add("fast");
  ASSERT_TRUE(other.run_until([&] { return w.worker->joined() && fast.worker->joined(); }));
  other.publish(1, kChunks);
  ASSERT_TRUE(other.run_until([&] { return w.worker->intake().chunks_verified() > 50; }));
  ASSERT_TRUE(other.install(2, kChunks));
  EXPECT_THAT(other.payloads_to("w"), ElementsAre(full(1), full(2)));
  EXPECT_EQ(other.deliveries_to("w"), 2 * kChunks) << "what it had of version 1 was not thrown away";
  EXPECT_EQ(other.origin().holdings().size(), 1u) << "and then it went";
}

/// Patches of 16 chunks that grow four times while they are made.
struct OpenPatchFleet : ChainOfTwo {
  OpenPatchFleet() : ChainOfTwo([](PayloadId) { return 16u; }) {}
  void SetUp() override {
    ChainOfTwo::SetUp();
    publish(1);
    fleet.grow_patches(4);
  }
  std::size_t patch_chunks_to(const std::string& name) {
    return static_cast<std::size_t>(std::ranges::count_if(
        fleet.deliveries(), [&](const Fleet::Arrival& d) { return d.to == name && d.payload == patch(1, 2); }));
  }
  /// Publishes version 2 and waits until the last in the chain has this much of the patch, while it is being made.
  void publish_until(std::size_t chunks) {
    fleet.publish(2, kChunks);
    ASSERT_TRUE(fleet.run_until([&] { return patch_chunks_to("b") >= chunks; }));
    ASSERT_TRUE(is_open(patch(1, 2)));
  }
};

TEST_F(OpenPatchFleet, ChunksTravelDownTheChainWhileThePatchIsMadeAndNobodyInstallsBeforeItsEnd) {
  publish_until(12);
  EXPECT_EQ(a.installed(), Version{1});
  EXPECT_EQ(b.installed(), Version{1});
  ASSERT_TRUE(fleet.run_until_installed(2));
  EXPECT_FALSE(is_open(patch(1, 2)));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(full(1), patch(1, 2)));
  EXPECT_EQ(patch_chunks_to("a"), 16u);
  EXPECT_EQ(patch_chunks_to("b"), 16u) << "each once";
}

TEST_F(OpenPatchFleet, WithdrawnPatchIsMadeUpForByTheFullPayload) {
  fleet.withdraw_patches(true);
  publish_until(8);
  ASSERT_TRUE(fleet.run_until_installed(2));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(full(1), patch(1, 2), full(2)));
  EXPECT_FALSE(fleet.origin().holdings().contains(patch(1, 2)));
  fleet.withdraw_patches(false);
  ASSERT_TRUE(fleet.install(3, kChunks));
  EXPECT_THAT(fleet.payloads_to("b"), Contains(patch(2, 3)));
}

TEST_F(OpenPatchFleet, WorkerThatRestartsInTheMiddleGetsAllOfIt) {
  publish_until(4);
  fleet.kill(b);
  fleet.run_for(20ms);
  fleet.restart(b);
  ASSERT_TRUE(fleet.run_until_installed(2));
  EXPECT_THAT(fleet.payloads_to("b"), ElementsAre(full(1), patch(1, 2)));
}

TEST_F(OpenPatchFleet, WorkerThatMissedTheEndHearsOfItWhenItJoinsAgain) {
  publish_until(4);
  fleet.freeze(b);
  ASSERT_TRUE(fleet.run_until([&] { return !is_open(patch(1, 2)); }));
  fleet.run_for(10s);  // the origin gives it up for lost
  fleet.thaw(b);
  ASSERT_TRUE(fleet.run_until_installed(2));
}

TEST_F(OpenPatchFleet, RelayThatDiesInTheMiddleIsPassedBy) {
  publish_until(4);
  const bool a_relays = fleet.parent_of("b") == "a";
  Fleet::Node& child = a_relays ? b : a;
  fleet.kill(a_relays ? a : b);
  ASSERT_TRUE(fleet.run_until([&] { return child.installed() == Version{2}; }));
  EXPECT_THAT(fleet.payloads_to(child.name), ElementsAre(full(1), patch(1, 2)));
}

}  // namespace
}  // namespace weightcast::sim
