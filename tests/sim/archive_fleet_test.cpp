// Workers that read from an archive beside their peers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/fleet.h"

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// 16 MB: four seconds over one line.
constexpr std::uint32_t kMany = 4000;
constexpr double kAlone_s = 4.0;

WorkerConfig archive_worker(ArchiveLimits limits = {}) {
  WorkerConfig config;
  config.uplink = kLine;
  config.archive = limits;
  return config;
}

struct ArchiveFleet : testing::Test {
  Fleet fleet{chain_config(kLine)};

  ArchiveFleet() { fleet.archive().rate = kLine; }
  Fleet::Node& add(const std::string& name, const WorkerConfig& config = archive_worker()) {
    Fleet::Node& node = fleet.add(name, config);
    fleet.run_for(100ms);
    return node;
  }
  /// Seconds from the announcement until all that live have it.
  double install(std::uint32_t chunks = kMany) {
    const Instant begun = fleet.now();
    EXPECT_TRUE(fleet.install(1, chunks));
    return to_seconds(fleet.now() - begun);
  }
  static std::uint64_t archived_chunks(const Fleet::Node& node) {
    return node.worker->intake().archive_bytes() / kChunkBytesMin;
  }
  static std::size_t said_of_archive(const Fleet::Node& node) {
    return static_cast<std::size_t>(std::ranges::count_if(
        node.log, [](const std::string& line) { return line.find("the archive:") != line.npos; }));
  }
};

TEST_F(ArchiveFleet, JoinerHasAVersionInTheTimeThatPeersAndArchiveTakeTogether) {
  Fleet::Node& a = add("a");
  const double took_s = install();
  EXPECT_LT(took_s, 1.15 * kAlone_s / 2);
  EXPECT_NEAR(double(archived_chunks(a)), kMany / 2.0, kMany / 10.0);
  // What came twice was on its way when the two met.
  EXPECT_LE(fleet.deliveries_to("a") + archived_chunks(a), kMany + 80);
  EXPECT_EQ(said_of_archive(a), 0u);
  EXPECT_THAT(a.log, testing::Contains(HasSubstr("from the archive")));
}

TEST_F(ArchiveFleet, ChainOfJoinersGetsNothingTwice) {
  for (const char* name : {"a", "b", "c"}) {
    // Its link has room for what it has from the archive, which its child gets there itself.
    fleet.set_chunk_time(fleet.add(name, archive_worker()), 200us);
    fleet.run_for(100ms);
  }
  EXPECT_LT(install(), 1.25 * kAlone_s / 2);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_LE(fleet.deliveries_to(name) + archived_chunks(fleet[name]), kMany + kMany / 20) << name;
  }
}

TEST_F(ArchiveFleet, ChildrenWithoutAnArchiveGetWhatTheirParentHasFromIt) {
  add("a");
  WorkerConfig without;
  without.uplink = kLine;
  Fleet::Node& b = add("b", without);
  install();
  EXPECT_EQ(archived_chunks(b), 0u);
  EXPECT_EQ(fleet.deliveries_to("b"), kMany);
}

// A packed payload is in no archive.
TEST(PackedArchiveFleet, JoinerWithAnArchiveGetsTheVersionAsItIs) {
  OriginConfig config = chain_config(kLine);
  config.packing = Packing::kAlways;
  Fleet fleet(config, [](PayloadId payload) { return payload.is_packed() ? kMany / 2 : 0; });
  fleet.archive().rate = kLine;
  fleet.add("a", archive_worker());
  WorkerConfig without;
  without.uplink = kLine;
  fleet.add("b", without);
  fleet.run_for(100ms);
  ASSERT_TRUE(fleet.install(1, kMany));
  EXPECT_EQ(fleet.payloads_to("a"), std::vector<PayloadId>{full(1)});
  EXPECT_GT(fleet["a"].worker->intake().archive_bytes(), 0u);
  EXPECT_TRUE(fleet.payloads_to("b").at(0).is_packed());
}

struct ArchiveFaults : ArchiveFleet, testing::WithParamInterface<ArchiveOptions::Fault> {};

TEST_P(ArchiveFaults, PeersBringAllAndTheWorkerSaysSoOnce) {
  fleet.archive().fault = GetParam();
  Fleet::Node& a = add("a");
  // Whoever stalls has a little of it expected of it until that is left to the parent.
  EXPECT_LT(install(), kAlone_s + 1.5);
  EXPECT_EQ(archived_chunks(a), 0u);
  if (GetParam() != ArchiveOptions::Fault::kStalls) {
    EXPECT_EQ(said_of_archive(a), 1u);
    EXPECT_NE(a.worker->intake().archive_trouble(), "");
  }
  EXPECT_EQ(fleet.member("a").offence, "");
  EXPECT_EQ(a.worker->last_error(), "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, ArchiveFaults,
                         testing::Values(ArchiveOptions::Fault::kLacks, ArchiveOptions::Fault::kDiffers,
                                         ArchiveOptions::Fault::kLies, ArchiveOptions::Fault::kFails,
                                         ArchiveOptions::Fault::kStalls, ArchiveOptions::Fault::kUnranged));

TEST_F(ArchiveFleet, OneThatFailsNowAndThenStillHelps) {
  fleet.archive().fault = ArchiveOptions::Fault::kFails;
  fleet.archive().fault_probability = 0.2;
  Fleet::Node& a = add("a");
  install();
  EXPECT_GT(archived_chunks(a), 0u);
}

TEST_F(ArchiveFleet, SlowOneCostsNoTime) {
  fleet.archive().rate = Rate{kLine.bytes_per_s / 100};
  add("a");
  EXPECT_LT(install(), kAlone_s + 1.5);
}

TEST_F(ArchiveFleet, CompletesAVersionWhoseOriginIsGone) {
  Fleet::Node& a = add("a");
  fleet.publish(1, kMany);
  ASSERT_TRUE(fleet.run_until([&] { return archived_chunks(a) > 100; }));
  fleet.freeze_origin();
  EXPECT_TRUE(fleet.run_until([&] { return a.installed() == Version{1}; }, 30s));
  fleet.thaw_origin();
  EXPECT_TRUE(fleet.run_until_installed(1));
}

TEST_F(ArchiveFleet, IsNotReadWhereParentsBringAsMuchAsItIsWorth) {
  ArchiveLimits limits;
  limits.below = Rate{kLine.bytes_per_s / 2};
  Fleet::Node& a = add("a", archive_worker(limits));
  install();
  EXPECT_EQ(archived_chunks(a), 0u);
}

TEST_F(ArchiveFleet, NoParentIsBlamedForTheLinkThatItsReadsTake) {
  fleet.archive().rate = Rate{4 * kLine.bytes_per_s};
  for (const char* name : {"a", "b", "c"}) {
    add(name);
  }
  install();
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(fleet.member(name).offence, "") << name;
}

}  // namespace
}  // namespace weightcast::sim
