// Whole nodes on simulated hosts; sim/whole/world.h says what is looked at.
#include <gtest/gtest.h>

#include <string_view>

#include "sim/whole/world.h"

namespace weightcast::sim {
namespace {

constexpr std::uint64_t kSeedsMax = 2000;

/// Whether a planted mistake is noticed within kSeedsMax seeds, by a violation that says `what`.
testing::AssertionResult is_noticed(PlantedBug bug, std::string_view what) {
  for (std::uint64_t seed = 1; seed <= kSeedsMax; ++seed) {
    WorldOptions world = random_world(seed);
    world.bug = bug;
    const auto violation = simulate(world).violation;
    if (violation && violation->find(what) != violation->npos) return testing::AssertionSuccess() << *violation;
  }
  return testing::AssertionFailure() << "not within " << kSeedsMax << " seeds";
}

TEST(WholeWorldCanary, NoticesThatTheStoreForgetsToSyncADirectory) {
  EXPECT_TRUE(is_noticed(PlantedBug::kForgottenDirectorySync, "was reported durable"));
}

TEST(WholeWorldCanary, NoticesThatTheDriverDropsBackPressure) {
  EXPECT_TRUE(is_noticed(PlantedBug::kIgnoredPause, "on their way to the disk"));
}

TEST(WholeWorldCanary, NoticesThatTheStoreWritesIntoFilesThatReadersHaveOpen) {
  EXPECT_TRUE(is_noticed(PlantedBug::kIgnoredReaders, "what a reader had open"));
}

TEST(WholeWorldCanary, NoticesThatABaseIsKeptTooShort) {
  EXPECT_TRUE(is_noticed(PlantedBug::kForgottenBase, "which its store does not have"));
}

TEST(WholeWorld, IsReproducedByItsSeed) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const WorldResult once = simulate(random_world(seed));
    const WorldResult again = simulate(random_world(seed));
    EXPECT_EQ(once.counts.hash, again.counts.hash);
    EXPECT_EQ(once.counts.events, again.counts.events);
    EXPECT_GT(once.counts.published, 0u);
  }
}

/// Two workers, one version, and a disk that stalls while it arrives.
WorldOptions stalled_world(PlantedBug bug) {
  WorldOptions world;
  world.hosts.resize(3);
  for (HostOptions& host : world.hosts) host.uplink = Rate{20e6};
  world.snapshot_bytes = 2000 * kKiB;
  world.packing = Packing::kNever;
  world.topology = Topology::kStar;
  world.faults.push_back({.kind = FaultKind::kPublish, .at = std::chrono::milliseconds(100)});
  world.bug = bug;
  // Long enough for the worker to try its ancestors again, on new connections.
  world.faults.push_back({.kind = FaultKind::kStalledDisk,
                          .at = std::chrono::milliseconds(150),
                          .lasts = std::chrono::seconds(12),
                          .node = 1,
                          .node_last = 1});
  return world;
}

TEST(WholeWorld, MemoryStaysInItsBoundWhileADiskStalls) {
  EXPECT_EQ(simulate(stalled_world(PlantedBug::kNothing)).violation, std::nullopt);
  const auto found = simulate(stalled_world(PlantedBug::kIgnoredPause)).violation;
  ASSERT_TRUE(found);
  EXPECT_NE(found->find("on their way to the disk"), std::string::npos) << *found;
}

TEST(WholeWorld, AStopAtAnyMomentOfAPublicationEndsCleanly) {
  for (int ms = 100; ms < 200; ms += 2) {
    WorldOptions world;
    world.seed = static_cast<std::uint64_t>(ms);
    world.hosts.resize(3);
    for (HostOptions& host : world.hosts) host.uplink = Rate{20e6};
    world.snapshot_bytes = 1000 * kKiB;
    world.packing = Packing::kAlways;
    for (const int at_ms : {50, 100}) {
      world.faults.push_back({.kind = FaultKind::kPublish, .at = std::chrono::milliseconds(at_ms)});
    }
    world.calm_at = std::chrono::seconds(6);
    const auto node = static_cast<NodeIndex>(ms / 2 % 2);
    world.faults.push_back({.kind = FaultKind::kLeave,
                            .at = std::chrono::milliseconds(ms),
                            .lasts = std::chrono::milliseconds(100),
                            .node = node,
                            .node_last = node});
    const WorldResult result = simulate(world);
    EXPECT_EQ(result.violation, std::nullopt);
  }
}

}  // namespace
}  // namespace weightcast::sim
