// Whole stories of publications that one slow link, disk or join held up: the origin says whose it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/sim/fleet.h"

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// The origin feeds a, which feeds b, which feeds c, which feeds d. All have version 1.
struct SlowFleet : testing::Test {
  Fleet fleet{chain_config()};

  void SetUp() override {
    for (const char* name : {"a", "b", "c", "d"}) fleet.join(name);
    publish(1);
    ASSERT_EQ(fleet.parent_of("d"), "c");
    ASSERT_EQ(fleet.parent_of("c"), "b");
  }
  void publish(std::uint64_t version) {
    ASSERT_TRUE(fleet.install(version, kChunks));
    fleet.run_for(10ms);  // so that the origin knows
  }
  const PublicationRecord& record(std::uint64_t version) { return fleet.origin().history().all().at(Version{version}); }
  const WorkerCourse& course(std::uint64_t version, const std::string& name) {
    return record(version).courses.at(fleet.member(name).id);
  }
};

TEST_F(SlowFleet, TheLastOfTheChainIsOnTheSlowLink) {
  fleet.set_chunk_time(fleet["c"], 10ms);  // its uplink, on which d is
  publish(2);
  EXPECT_EQ(record(2).end, PublicationRecord::End::kComplete);
  EXPECT_EQ(record(2).slowest, "d");
  EXPECT_EQ(record(2).cause, "link");
  EXPECT_THAT(record(2).why, testing::MatchesRegex("its link brought [0-9.]+ KiB/s from c"));
  EXPECT_THAT(fleet["origin"].log, Contains(AllOf(StartsWith("version 2 is at all 4 workers after 1."),
                                                  HasSubstr("slowest is d"), HasSubstr(record(2).why))));
}

TEST_F(SlowFleet, TheLastOfTheChainIsBehindTheSlowLink) {
  fleet.set_chunk_time(fleet["a"], 10ms);
  publish(2);
  EXPECT_EQ(record(2).slowest, "d");
  EXPECT_EQ(record(2).cause, "parent");
  EXPECT_THAT(
      record(2).why,
      testing::MatchesRegex("it waited for its parent c \\(behind b\\); b: its link brought [0-9.]+ KiB/s from a"));
}

TEST_F(SlowFleet, EachWorkerSaysWhereItsOwnTimeWent) {
  fleet.set_chunk_time(fleet["b"], 10ms);
  publish(2);
  for (const char* name : {"a", "b", "c", "d"}) {
    const WorkerCourse& one = course(2, name);
    ASSERT_TRUE(one.phases.has_value()) << name;
    EXPECT_EQ(one.phases->bytes, record(2).payload_bytes) << name;
    EXPECT_EQ(one.phases->fed_bytes, one.phases->bytes) << name << " has one parent";
    EXPECT_LE(one.phases->total(), *one.installed_at - *one.told_at) << name << " counts no time twice";
    EXPECT_GE(one.phases->total() + 3 * Fleet::kLatency, *one.installed_at - *one.told_at)
        << name << " counts all but the way there and back";
    const std::string parent = fleet.parent_of(name);
    EXPECT_EQ(one.phases->fed_by, parent == "origin" ? kOriginId : fleet.member(parent).id) << name;
  }
  EXPECT_LT(course(2, "b").phases->receiving, 200ms);
  EXPECT_GT(course(2, "c").phases->receiving, 900ms);
  EXPECT_THAT(fleet["c"].log, Contains(AllOf(StartsWith("version 2 is installed after 1."), HasSubstr(" from b;"))));
}

TEST_F(SlowFleet, KnowsWhoCameLate) {
  fleet.set_chunk_time(fleet["c"], 12ms);
  fleet.publish(2, kChunks);
  fleet.run_for(1s);
  Fleet::Node& e = fleet.add("e");
  ASSERT_TRUE(fleet.run_until([&] { return e.worker->installed_version() == Version{2}; }));
  ASSERT_TRUE(fleet.run_until_installed(2));
  fleet.run_for(10ms);
  EXPECT_TRUE(course(2, "e").joined_at.has_value());
  EXPECT_FALSE(course(2, "a").joined_at.has_value());
  EXPECT_EQ(record(2).slowest, "e");
  EXPECT_EQ(record(2).cause, "joined late");
  EXPECT_THAT(record(2).why, testing::MatchesRegex("it joined 1.0. s after the publication had begun"));
}

TEST_F(SlowFleet, LosesItsParent) {
  fleet.publish(2, kChunks);
  ASSERT_TRUE(fleet.run_until([&] { return fleet["d"].worker->intake().chunks_verified() > 10; }));
  fleet.freeze(fleet["c"]);
  ASSERT_TRUE(fleet.run_until([&] { return fleet["d"].installed() == Version{2}; }));
  fleet.run_for(10ms);
  EXPECT_GT(course(2, "d").phases->interrupted, 100ms);
  EXPECT_EQ(course(2, "d").phases->parents_left, 1u);
  EXPECT_EQ(course(2, "a").phases->parents_left, 0u);
}

TEST_F(SlowFleet, TheOneWhoNeverGotItIsNamedWhenItIsLost) {
  fleet.freeze(fleet["d"]);
  fleet.publish(2, kChunks);
  ASSERT_TRUE(fleet.run_until([&] { return record(2).end == PublicationRecord::End::kComplete; }));
  EXPECT_EQ(record(2).slowest, "d");
  EXPECT_EQ(record(2).cause, "left");
}

/// One worker with version 1, and patches of so many chunks.
struct SlowPatches : testing::Test {
  std::map<PayloadId, std::uint32_t> chunks;  ///< of patches that are worth it
  Fleet fleet{OriginConfig(), [this](PayloadId p) { return chunks.contains(p) ? chunks.at(p) : 0; }};
  Fleet::Node& w = fleet.add("w");

  void SetUp() override {
    ASSERT_TRUE(fleet.run_until([&] { return w.worker->joined(); }));
    fleet.run_for(1s);  // until the links are probed
    ASSERT_TRUE(fleet.install(1, kChunks));
  }
  void finish(std::uint64_t version) {
    ASSERT_TRUE(fleet.run_until_installed(version));
    fleet.run_for(10ms);
    const WorkerCourse& course = record(version).courses.at(fleet.member("w").id);
    ASSERT_TRUE(course.phases.has_value());
    EXPECT_LE(course.phases->total(), *course.installed_at - *course.told_at);
    EXPECT_GE(course.phases->total() + 3 * Fleet::kLatency, *course.installed_at - *course.told_at)
        << "all but the way there and back is in some phase";
  }
  const PublicationRecord& record(std::uint64_t version) { return fleet.origin().history().all().at(Version{version}); }
  const InstallPhases& phases(std::uint64_t version) {
    return *record(version).courses.at(fleet.member("w").id).phases;
  }
};

TEST_F(SlowPatches, WaitForTheVersionBefore) {
  chunks = {{patch(1, 3), 90}, {patch(2, 3), 2}};
  fleet.publish(2, kChunks);
  ASSERT_TRUE(fleet.run_until([&] { return w.worker->intake().chunks_verified() > 20; }));
  fleet.publish(3, kChunks);  // as a patch that does not fit any more when version 2 is installed
  finish(3);
  EXPECT_THAT(fleet.payloads_to("w"), ElementsAre(full(1), full(2), patch(2, 3)));
  EXPECT_EQ(record(3).cause, "version before");
  EXPECT_GT(phases(3).waiting, 50ms);
}

TEST_F(SlowPatches, CannotBeAppliedAtFirst) {
  chunks = {{patch(1, 2), 90}};
  fleet.disk(w).damages_bases = true;
  fleet.publish(2, kChunks);
  finish(2);
  EXPECT_THAT(fleet.payloads_to("w"), testing::UnorderedElementsAre(full(1), patch(1, 2), full(2)));
  EXPECT_GT(phases(2).given_up, 80ms) << "what the patch took";
  EXPECT_GE(phases(2).waiting, phases(2).given_up);
}

TEST(SlowDisk, ReadsNothingWhileItHasTooMuchToWrite) {
  constexpr std::uint32_t kMany = 10'000;  // more than a node keeps in memory
  Fleet fleet;
  Fleet::Node& w = fleet.join("w");
  fleet.set_chunk_time(fleet["origin"], 10us);
  fleet.set_disk_rate(w, Rate{10e6});
  ASSERT_TRUE(fleet.install(1, kMany));
  fleet.run_for(10ms);
  const PublicationRecord& record = fleet.origin().history().all().at(Version{1});
  const InstallPhases& phases = *record.courses.at(fleet.member("w").id).phases;
  EXPECT_EQ(record.cause, "disk") << record.why;
  EXPECT_GT(phases.disk_behind, 500ms);
  EXPECT_LE(phases.disk_behind, phases.asking + phases.receiving) << "what follows is storing";
  EXPECT_GT(phases.storing, 1s);
}

}  // namespace
}  // namespace weightcast::sim
