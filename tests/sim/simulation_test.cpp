#include <gtest/gtest.h>

#include "sim/options.h"
#include "sim/schedule.h"

namespace weightcast::sim {
namespace {

/// ECHO-2's setting: B = 300 Mbit/s, b = 100 Mbit/s, 64 MiB, 12 workers.
SimOptions echo_options(Topology topology) {
  SimOptions options;
  options.topology = topology;
  options.chunk_bytes = 64 * kKiB;
  return options;
}

double t100_s(const SimOptions& options) {
  const SimResult result = simulate(options);
  EXPECT_FALSE(result.violation.has_value()) << *result.violation;
  EXPECT_EQ(result.chunks_delivered_twice, 0u);
  const auto t = result.publications.at(0).reached(1.0);
  EXPECT_TRUE(t.has_value());
  return t ? to_seconds(*t) : 0;
}

TEST(Simulation, StarTakesEverybodysBytesOverTheOriginsUplink) {
  const double formula_s = 12 * 64.0 * kMiB * 8 / 300e6;
  EXPECT_NEAR(t100_s(echo_options(Topology::kStar)), formula_s, formula_s * 0.01);
}

TEST(Simulation, ChainTakesOnePayloadAndAChunkPerHop) {
  SimOptions options = echo_options(Topology::kChain);
  options.network.one_way_delay = std::chrono::milliseconds(5);
  // Three chains of four: three hops behind the first, which waits for announcement, dial (4) and subscription.
  const double chunk_s = 64.0 * kKiB * 8 / 100e6, hop_s = 0.005;
  const double formula_s = 64.0 * kMiB * 8 / 100e6 + 3 * (chunk_s + hop_s) + 7 * hop_s;
  EXPECT_NEAR(t100_s(options), formula_s, formula_s * 0.01);
}

TEST(Simulation, NobodyTakesWhatTheOriginsKeyHasNotSigned) {
  SimOptions options;
  options.workers = 3;
  options.payload_bytes = kMiB;
  options.settle_max = std::chrono::seconds(5);
  options.nodes.origin_lies = true;
  const SimResult result = simulate(options);
  EXPECT_TRUE(result.violation.has_value()) << "they would have the version by now";
  ASSERT_FALSE(result.publications.empty());
  for (const auto& installed : result.publications[0].installed) EXPECT_FALSE(installed.has_value());
}

TEST(Simulation, EachLieIsNamedByWhatFollowsFromIt) {
  for (const Lie lie :
       {Lie::kCorrupts, Lie::kReplays, Lie::kWithholds, Lie::kBlames, Lie::kImpersonates, Lie::kFloods}) {
    SimOptions options = echo_options(Topology::kChain);
    options.workers = 6;
    LiarOptions liar;
    liar.node = 2;
    liar.lies = {lie};
    options.liars = {liar};
    for (const int at_s : {8, 16, 24}) {  // a replay needs an older version
      Fault publish;
      publish.kind = FaultKind::kPublish;
      publish.at = std::chrono::seconds(at_s);
      options.faults.push_back(publish);
    }
    const SimResult result = simulate(options);
    EXPECT_FALSE(result.violation.has_value()) << *result.violation;
    EXPECT_EQ(result.liars_named, 1u) << to_string(lie);
    options.liars.clear();
    EXPECT_EQ(simulate(options).liars_named, 0u);
  }
}

TEST(Simulation, ASlowDiskSlowsTheNetworkToItsRate) {
  SimOptions options = echo_options(Topology::kChain);
  options.workers = 1;
  options.disk.write_rate = Rate{4e6};
  const double formula_s = 64.0 * kMiB / 4e6;
  EXPECT_NEAR(t100_s(options), formula_s, formula_s * 0.01);
}

TEST(Simulation, SlowLinksOfUnknownRatesAreWaitedFor) {
  // A chunk takes longer than a parent may be silent for, on every link.
  for (const auto& [topology, workers] : {std::pair(Topology::kChain, 2u), std::pair(Topology::kStar, 6u)}) {
    SimOptions options;
    options.workers = workers;
    options.topology = topology;
    options.nodes.rates_configured = false;
    options.chunk_bytes = 512 * kKiB;
    options.payload_bytes = 4 * kMiB;
    options.network.origin_uplink = options.network.worker_uplink = Rate::bits(1e6);
    options.settle_max = 4 * from_seconds(workers * 4.0 * kMiB * 8 / 1e6);
    (void)t100_s(options);
  }
}

TEST(Simulation, ASeedIsTheWholeRun) {
  for (const std::uint64_t seed : {3u, 11u, 19u}) {
    const SimResult once = simulate(random_schedule(seed)), again = simulate(random_schedule(seed));
    EXPECT_EQ(once.hash, again.hash);
    EXPECT_EQ(once.events, again.events);
    EXPECT_NE(once.hash, simulate(random_schedule(seed + 1)).hash);
  }
}

TEST(Schedule, SoaksThatBeginInTwoSecondsShareNoSeed) {
  const Duration begin = std::chrono::hours(24 * 365 * 50);
  EXPECT_GT(fresh_seed(begin), 10'000'000u) << "seeds below were used before there was a rule";
  EXPECT_EQ(fresh_seed(begin + std::chrono::seconds(1)), fresh_seed(begin) + kSeedsPerSecond);
}

}  // namespace
}  // namespace weightcast::sim
