// Whole stories, told by cores in a simulation: who gets what, from whom, and what happens when someone fails.
#include "tests/sim/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/transport/core/plan/relations.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;

void expect_each_chunk_once(const Fleet& fleet, const std::string& to, std::uint32_t chunks) {
  EXPECT_EQ(fleet.deliveries_to(to), chunks);
  std::set<ChunkIndex> seen;
  for (const auto& d : fleet.deliveries()) {
    if (d.to == to) {
      EXPECT_TRUE(seen.insert(d.chunk).second) << to << " was sent chunk " << d.chunk.value << " twice";
    }
  }
}

TEST_F(ChainOfThree, EachGetsEveryChunkOnceAndInOrderFromTheOneBefore) {
  fleet.publish(1, 200);
  EXPECT_EQ(fleet.parent_of("a"), "origin");
  EXPECT_EQ(fleet.parent_of("b"), "a");
  EXPECT_EQ(fleet.parent_of("c"), "b");
  ASSERT_TRUE(fleet.run_until_installed(1));
  std::map<std::string, std::uint32_t> next;
  for (const auto& d : fleet.deliveries()) {
    EXPECT_EQ(d.from, fleet.parent_of(d.to));
    EXPECT_EQ(d.chunk.value, next[d.to]++);
  }
  for (const std::string name : {"a", "b", "c"}) EXPECT_EQ(next[name], 200u);
}

TEST_F(ChainOfThree, RelaysWhileItReceives) {
  const Instant start = fleet.now();
  ASSERT_TRUE(fleet.install(1, 1000));
  EXPECT_LT(fleet.now() - start, 1050ms) << "store and forward of whole payloads would take 3 s";
}

TEST_F(ChainOfThree, OriginKnowsWhoHasInstalledAndWhen) {
  ASSERT_TRUE(fleet.install(1, 100));
  fleet.run_for(10ms);
  const auto progress = fleet.origin().publications().progress(Version{1});
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->active, 3u);
  EXPECT_EQ(progress->installed, 3u);
  EXPECT_TRUE(progress->missing.empty());
  ASSERT_TRUE(progress->t50 && progress->t90 && progress->t100);
  EXPECT_LE(*progress->t50, *progress->t100);
  EXPECT_GE(*progress->t100, 100ms);
}

TEST_F(ChainOfThree, DamagedChunkIsNeitherForwardedNorStored) {
  fleet.damage_chunks_of(a);
  ASSERT_TRUE(fleet.install(1, 100));
  for (const auto& d : fleet.deliveries()) {
    EXPECT_TRUE(!d.damaged || d.from == "a") << d.from << " passed on what it had not verified";
  }
  std::size_t from_a = 0;
  for (const auto& d : fleet.deliveries()) from_a += d.from == "a" ? 1 : 0;
  EXPECT_LE(from_a, 64u) << "b leaves it at the first damaged chunk; what was on its way is all that it gets";
  EXPECT_EQ(fleet.origin().faults().complaints_of(fleet.member("a").id), 1u);
  EXPECT_EQ(fleet.parent_of("b"), "origin");
  EXPECT_EQ(fleet.member("a").standing.record().corrupt, 0u) << "b alone says so, and b may lie";

  fleet.publish(2, 100);
  ASSERT_TRUE(fleet.run_until_installed(2, 1s));
  EXPECT_EQ(fleet.parent_of("c"), "origin");
  for (const char* name : {"b", "c"}) EXPECT_NE(fleet.parent_of(name), "a") << "one of the two is at fault";
}

TEST_F(ChainOfThree, VersionThatHasRottenAtTheOriginHoldsNobodyUp) {
  fleet.disk(fleet["origin"]).rotten.insert({Version{1}, ChunkIndex{50}});
  fleet.publish(1, 100);
  ASSERT_TRUE(fleet.run_until([&] { return !fleet.origin().last_error().empty(); }, 2s));
  EXPECT_THAT(fleet.origin().last_error(), HasSubstr("version 1, chunk 50"));
  fleet.publish(2, 100);
  ASSERT_TRUE(fleet.run_until_installed(2, 5s));
  for (Fleet::Node* node : {&a, &b, &c}) EXPECT_FALSE(node->worker->holdings().contains(Version{1}));
}

TEST_F(ChainOfThree, RelayWhoseCopyHasRottenFindsOutAndItsChildrenGetItElsewhere) {
  ASSERT_TRUE(fleet.install(1, 100));
  fleet.disk(c).rotten.insert({Version{1}, ChunkIndex{50}});
  Fleet::Node& late = fleet.add("late");
  ASSERT_TRUE(fleet.run_until([&] { return late.installed() == Version{1}; }, 5s));
  EXPECT_THAT(c.worker->last_error(), HasSubstr("version 1, chunk 50"));
  EXPECT_FALSE(c.worker->holdings().contains(Version{1}));
}

TEST_F(ChainOfThree, DeathOfRelayMovesItsChildToTheNextAncestorAndNothingIsSentTwice) {
  fleet.publish(1, 1000);
  fleet.run_for(300ms);
  const Instant died = fleet.now();
  fleet.kill(a);
  ASSERT_TRUE(fleet.run_until([&] { return b.installed() == Version{1} && c.installed() == Version{1}; }));
  EXPECT_LT(fleet.now() - died, 1s) << "700 chunks were left";
  expect_each_chunk_once(fleet, "b", 1000);
  expect_each_chunk_once(fleet, "c", 1000);
  EXPECT_EQ(fleet.parent_of("b"), "origin");
}

TEST_F(ChainOfThree, WhoIsMovedByANewPlanGetsNothingTwice) {
  fleet.set_chunk_time(fleet["origin"], 500us);  // it comes to feed two
  fleet.publish(1, 1000);
  fleet.run_for(300ms);
  // Everything below it hangs elsewhere from now on, and its own place changes as it comes back.
  fleet.origin().handle_message(fleet.origin_now(), fleet.member("a").conn, [] {
    wire::Message message;
    set_payload(*message.mutable_install_failed(), Version{1});
    return message;
  }());
  ASSERT_TRUE(fleet.run_until([&] { return b.installed() == Version{1} && c.installed() == Version{1}; }));
  EXPECT_EQ(fleet.parent_of("b"), "origin");
  expect_each_chunk_once(fleet, "b", 1000);
  expect_each_chunk_once(fleet, "c", 1000);
}

TEST_F(ChainOfThree, RelayThatFreezesIsLeftWithinThreeSeconds) {
  fleet.publish(1, 5000);
  fleet.run_for(300ms);
  fleet.freeze(a);
  const auto before = fleet.deliveries_to("b");
  ASSERT_TRUE(fleet.run_until([&] { return fleet.deliveries_to("b") > before + 10; }, 3s));
  EXPECT_EQ(fleet.deliveries().back().payload, Version{1});
  EXPECT_GT(fleet.deliveries_to("c"), 0u);
}

TEST_F(ChainOfThree, RelayFarBelowItsRateIsBypassedAndBecomesALeaf) {
  fleet.set_chunk_time(a, 10ms);
  fleet.publish(1, 5000);
  ASSERT_TRUE(fleet.run_until([&] { return b.installed() == Version{1}; }));
  EXPECT_EQ(fleet.member("a").standing.standing(), Standing::kSeed) << "the order changes between publications only";
  EXPECT_EQ(fleet.parent_of("b"), "origin");
  EXPECT_TRUE(children_of(*fleet.origin().publications().latest_plan(), fleet.member("a").id, 0).empty());
}

TEST_F(ChainOfThree, WorkerThatRestartsGoesOnFromWhatItHas) {
  fleet.publish(1, 1000);
  fleet.run_for(400ms);
  fleet.kill(b);
  fleet.run_for(100ms);
  fleet.restart(b);
  ASSERT_TRUE(fleet.run_until_installed(1));
  // What was on its way when it died was never stored.
  EXPECT_LE(fleet.deliveries_to("b"), 1000u + 2u);
  EXPECT_THAT(b.log, Contains(HasSubstr("were here already")));
}

TEST(Fleet, VersionInHandIsFinishedThenTheNewestComesAndThoseBetweenAreSkipped) {
  OriginConfig config = chain_config(kLine);
  config.versions_kept = 3;
  Fleet fleet(config);
  Fleet::Node& a = fleet.add("a", line_worker());
  fleet.add("b", line_worker());
  fleet.run_for(100ms);
  fleet.publish(1, 300);
  fleet.run_for(50ms);
  fleet.publish(2, 300);
  fleet.publish(3, 300);
  ASSERT_TRUE(fleet.run_until([&] { return a.installed() == Version{1}; }));
  ASSERT_TRUE(fleet.run_until_installed(3));
  for (const auto& d : fleet.deliveries()) EXPECT_NE(d.payload, Version{2});
}

TEST_F(ChainOfThree, VersionThatTheOriginHasForgottenIsGivenUpForTheNewest) {
  fleet.publish(1, 300);
  fleet.run_for(50ms);
  fleet.publish(2, 300);
  fleet.publish(3, 300);  // it keeps two
  EXPECT_TRUE(fleet.run_until_installed(3, 5s));
}

TEST_F(ChainOfThree, WorkerWithAFullDiskLeavesTheChainAndComesBackWhenThereIsRoom) {
  ASSERT_TRUE(fleet.install(1, 1000));
  fleet.fill_disk(a);
  fleet.publish(2, 1000);
  ASSERT_TRUE(fleet.run_until([&] { return b.installed() == Version{2} && c.installed() == Version{2}; }, 10s));
  EXPECT_EQ(a.installed(), Version{1}) << "it keeps serving what it has";
  EXPECT_EQ(fleet.member("a").failed, Version{2});
  EXPECT_THAT(fleet.member("a").last_error, HasSubstr("full"));
  fleet.clear_disk(a);
  EXPECT_TRUE(fleet.run_until_installed(2, 15s));
}

TEST_F(ChainOfThree, DiskThatFillsInTheMiddleKeepsWhatIsStored) {
  fleet.publish(1, 1000);
  fleet.run_for(500ms);
  fleet.fill_disk(b);
  fleet.run_for(100ms);
  EXPECT_EQ(fleet.member("b").failed, Version{1});
  fleet.clear_disk(b);
  const auto before = fleet.deliveries_to("b");
  ASSERT_TRUE(fleet.run_until_installed(1));
  EXPECT_LE(fleet.deliveries_to("b") - before, 530u) << "the first half was on disk";
}

TEST_F(ChainOfThree, SnapshotThatFailsTheLastCheckIsNeverInstalled) {
  fleet.disk(b).damages_snapshots = true;
  fleet.publish(1, 100);
  ASSERT_TRUE(fleet.run_until([&] { return a.installed() == Version{1} && c.installed() == Version{1}; }));
  fleet.run_for(2s);
  EXPECT_EQ(b.installed(), kNoVersion);
  EXPECT_EQ(fleet.member("b").failed, Version{1});
  fleet.disk(b).damages_snapshots = false;
  EXPECT_TRUE(fleet.run_until_installed(1, 15s)) << "it tries again, from nothing";
}

TEST_F(ChainOfThree, LateJoinerGetsTheLatestVersion) {
  ASSERT_TRUE(fleet.install(1, 100));
  fleet.add("d", line_worker());
  EXPECT_TRUE(fleet.run_until_installed(1, 1s));
}

TEST_F(ChainOfThree, FrozenOriginLosesNobodyWhenItWakes) {
  fleet.freeze(fleet["origin"]);
  fleet.run_for(20s);
  fleet.thaw(fleet["origin"]);
  fleet.run_for(10s);
  EXPECT_EQ(fleet.origin().members().active_count(), 3u);
  fleet.publish(1, 100);
  EXPECT_TRUE(fleet.run_until_installed(1, 5s));
}

TEST_F(ChainOfThree, ReceivingGoesOnBetweenWorkersWhileTheOriginIsSilent) {
  fleet.publish(1, 2000);
  ASSERT_TRUE(fleet.run_until([&] { return a.installed() == Version{1}; }));
  fleet.freeze(fleet["origin"]);
  EXPECT_TRUE(fleet.run_until_installed(1, 1s));
}

TEST(Fleet, SilentWorkerIsLostEvenIfItIsTheOnlyOne) {
  Fleet fleet;
  Fleet::Node& a = fleet.add("a");
  fleet.run_for(1s);
  ASSERT_EQ(fleet.origin().members().active_count(), 1u);
  fleet.freeze(a);
  EXPECT_TRUE(fleet.run_until([&] { return fleet.origin().members().active_count() == 0; }, 7s));
  fleet.thaw(a);
  EXPECT_TRUE(fleet.run_until([&] { return fleet.origin().members().active_count() == 1; }, 5s)) << "it dials again";
}

TEST(Fleet, RelayThatSaysForEverThatItHasNothingMoreCostsSecondsOnceAndFeedsNobodyAfterwards) {
  for (const bool rates_known : {false, true}) {
    OriginConfig config = chain_config();
    WorkerConfig worker;
    if (rates_known) config.uplink = worker.uplink = worker.downlink = Rate{4e6};
    Fleet fleet(config);
    for (const char* name : {"a", "b", "c", "d"}) fleet.add(name, worker).withholds_chunks = *name == 'a';
    fleet.run_for(1s);
    for (std::uint64_t version = 1; version <= 3; ++version) {
      fleet.publish(version, 1000);  // a second on each link
      const Duration bound = version == 1 ? 4s : 2s;
      EXPECT_TRUE(fleet.run_until_installed(version, bound)) << version << (rates_known ? ", rates known" : "");
      for (const char* name : {"b", "c", "d"}) EXPECT_NE(fleet.parent_of(name), "a") << version;
      fleet.run_for(1s);
    }
  }
}

TEST(Fleet, TwoRelaysInARowThatWithholdEverythingDelayLittle) {
  Fleet fleet(chain_config());
  for (const char* name : {"a", "b", "c", "d", "e"}) fleet.add(name);
  fleet.run_for(1s);
  fleet["a"].withholds_chunks = fleet["b"].withholds_chunks = true;
  fleet.publish(1, 1000);
  EXPECT_TRUE(fleet.run_until_installed(1, 7s));
}

TEST(Fleet, SecondWorkerOfOneNameIsRefusedAndTheFirstStays) {
  Fleet fleet;
  Fleet::Node& first = fleet.add("a");
  fleet.run_for(100ms);
  Fleet::Node& second = fleet.add("a");
  fleet.run_for(500ms);
  EXPECT_TRUE(first.worker->joined());
  EXPECT_FALSE(second.worker->joined());
  EXPECT_THAT(second.worker->last_error(), HasSubstr("--name")) << "it says what to do, for as long as it is refused";
}

TEST(Fleet, RestartedWorkerTakesItsOwnPlaceAtOnce) {
  Fleet fleet;
  Fleet::Node& a = fleet.add("a");
  fleet.run_for(100ms);
  const PeerId before = a.worker->id();
  fleet.kill(a);
  fleet.restart(a);
  ASSERT_TRUE(fleet.run_until([&] { return a.worker->joined(); }, 3s));
  EXPECT_EQ(a.worker->id(), before);
  EXPECT_EQ(fleet.origin().members().all().size(), 1u);
}

TEST(Fleet, WorkerOfAnotherModelIsRefusedWithBothNames) {
  OriginConfig origin;
  origin.model_id = "llama";
  Fleet fleet(origin);
  WorkerConfig config;
  config.model_id = "qwen";
  Fleet::Node& a = fleet.add("a", config);
  fleet.run_for(1s);
  EXPECT_FALSE(a.worker->joined());
  EXPECT_THAT(a.worker->last_error(), testing::AllOf(HasSubstr("llama"), HasSubstr("qwen")));
}

TEST(Fleet, SeveralStreamsPerParentBringTheSameChunks) {
  Fleet fleet;
  WorkerConfig config;
  config.streams = 4;
  fleet.add("a", config);
  fleet.run_for(100ms);
  fleet.publish(1, 2500);  // three parts of digests
  ASSERT_TRUE(fleet.run_until_installed(1));
  EXPECT_EQ(fleet.deliveries_to("a"), 2500u);
}

TEST(Fleet, StripedPlanBringsEveryoneEverythingOnce) {
  OriginConfig origin;
  origin.topology = Topology::kStriped;
  origin.uplink = kLine;
  Fleet fleet(origin);
  for (int i = 0; i < 9; ++i) fleet.add("w" + std::to_string(i), line_worker());
  fleet.run_for(200ms);
  ASSERT_TRUE(fleet.install(1, 500));
  EXPECT_EQ(fleet.deliveries().size(), 9u * 500u);
}

TEST(Fleet, AnyRelayMayDieAtAnyMomentOfAnyTopology) {
  for (const Topology topology : {Topology::kStar, Topology::kChain, Topology::kTree, Topology::kStriped}) {
    for (int moment_ms = 0; moment_ms < 200; moment_ms += 23) {
      OriginConfig origin;
      origin.topology = topology;
      origin.uplink = kLine;
      Fleet fleet(origin);
      for (int i = 0; i < 6; ++i) fleet.add("w" + std::to_string(i), line_worker());
      fleet.run_for(200ms);
      fleet.publish(1, 200);
      fleet.run_for(std::chrono::milliseconds(moment_ms));
      fleet.kill(fleet["w" + std::to_string(moment_ms % 6)]);
      ASSERT_TRUE(fleet.run_until_installed(1)) << to_string(topology) << ", " << moment_ms << " ms";
    }
  }
}

}  // namespace
}  // namespace weightcast::sim
