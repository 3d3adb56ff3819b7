// Workers that others cannot dial: who gets what from whom, and how long it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "sim/options.h"
#include "tests/sim/fleet.h"

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;

/// The time of the second publication, half a minute after the first.
double second_publication_s(SimOptions options) {
  Fault publish;
  publish.kind = FaultKind::kPublish;
  publish.at = 30s;
  options.faults.push_back(publish);
  const SimResult result = simulate(options);
  EXPECT_FALSE(result.violation.has_value()) << *result.violation;
  const auto t = result.publications.at(1).reached(1.0);
  EXPECT_TRUE(t.has_value());
  return t ? to_seconds(*t) : 1e9;
}

TEST(UnreachableFleet, SecondPublicationTakesWhatItTakesIfThatHostIsLeafOnly) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    Random random(seed);
    SimOptions options;
    options.seed = seed;
    options.workers = static_cast<std::uint32_t>(random.between(4, 26));
    options.payload_bytes = random.between(16, 64) * kMiB;
    options.chunk_bytes = 64 * kKiB;
    options.topology = std::array{Topology::kAuto, Topology::kChain, Topology::kTree, Topology::kStriped}[seed % 4];
    const auto blocked = static_cast<NodeIndex>(random.between(1, options.workers));
    SimOptions leaf_only = options;
    leaf_only.configure_worker = [blocked](NodeIndex index, WorkerConfig& config) {
      config.leaf_only = index == blocked;
    };
    Fault block;
    block.kind = FaultKind::kBlock;
    block.node = block.node_last = blocked;
    block.one_way = random.chance(0.5);
    options.faults.push_back(block);
    EXPECT_LE(second_publication_s(options), 1.2 * second_publication_s(leaf_only)) << "seed " << seed;
  }
}

TEST(UnreachableFleet, WorkerThatReachesNobodyCostsTheOthersLittle) {
  for (const Topology topology : {Topology::kChain, Topology::kTree, Topology::kStriped, Topology::kAuto}) {
    SimOptions options;
    options.workers = 12;
    options.topology = topology;
    options.chunk_bytes = 64 * kKiB;
    const double free_s = second_publication_s(options);
    for (NodeIndex other = 1; other <= options.workers; ++other) {
      if (other == 6) continue;
      Fault block;
      block.kind = FaultKind::kBlock;
      block.node = block.node_last = other;
      block.peer = 6;
      options.faults.push_back(block);
    }
    // In a striped plan a relay has children in one stripe: the origin sends it all of the others, too.
    EXPECT_LE(second_publication_s(options), (topology == Topology::kStriped ? 1.7 : 1.2) * free_s)
        << to_string(topology);
  }
}

using UnreachableChain = ChainOfThree;

struct BlockedChain : ChainOfThree, testing::WithParamInterface<bool> {};

TEST_P(BlockedChain, BothEndsSayWhoCannotReachWhomAndWhyAndNobodyIsBlamed) {
  const bool refused = GetParam();
  fleet.block(a, refused);
  fleet.publish(1, 3000);
  ASSERT_TRUE(fleet.run_until_installed(1, 10s));
  fleet.run_for(6s);
  const std::string why = refused ? "n1:1: connection refused" : "n1:1: timed out";
  EXPECT_THAT(fleet["origin"].log, Contains("worker b cannot reach a at " + why));
  EXPECT_THAT(b.log, Contains("cannot reach a at " + why));
  EXPECT_EQ(fleet.member("c").cannot_reach.count(fleet.member("a").id), 1u) << "it was asked";
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_TRUE(fleet.member(name).offence.empty()) << name;
    EXPECT_EQ(fleet.origin().faults().complaints_of(fleet.member(name).id), 0u) << name;
  }
  fleet.unblock(a, refused);
  ASSERT_TRUE(fleet.run_until([&] { return fleet.member("b").cannot_reach.empty(); }, Reachability::kRetryMax + 1min));
  EXPECT_TRUE(fleet.run_until([&] { return fleet.member("c").cannot_reach.empty(); }, 10s)) << "as soon as one does";
}

INSTANTIATE_TEST_SUITE_P(Ports, BlockedChain, testing::Bool(),
                         [](const auto& refused) { return refused.param ? "Refuse" : "SayNothing"; });

TEST_F(UnreachableChain, FirstPublicationLosesADialAndTheSecondNothing) {
  fleet.block(a);
  fleet.publish(1, 1000);
  ASSERT_TRUE(fleet.run_until_installed(1, 5s));
  fleet.run_for(5s);
  const Instant start = fleet.now();
  fleet.publish(2, 1000);
  ASSERT_TRUE(fleet.run_until_installed(2, 5s));
  EXPECT_LT(fleet.now() - start, 1100ms) << "a second on each link";
}

TEST_F(UnreachableChain, ReleasedWorkerGetsWhatItIsInTheMiddleOfToItsEnd) {
  fleet.publish(1, 2000);
  fleet.run_for(300ms);
  ASSERT_TRUE(fleet.origin().set_serving(fleet.origin_now(), "c", false).has_value());
  fleet.kill(a);
  fleet.kill(b);  // so that it has to ask the origin
  ASSERT_TRUE(fleet.run_until([&] { return c.installed() == Version{1}; }, 10s));
  EXPECT_THAT(fleet["origin"].log, Not(Contains(HasSubstr("no place"))));
  fleet.publish(2, 100);
  fleet.run_for(2s);
  EXPECT_EQ(c.installed(), Version{1}) << "and nothing after that";
}

}  // namespace
}  // namespace weightcast::sim
