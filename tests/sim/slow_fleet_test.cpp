// Whole stories of publications that one slow link, disk or join held up: the origin says whose it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/fleet.h"

namespace weightcast::sim {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint32_t kChunks = 100;

/// The origin feeds a, which feeds b, which feeds c, which feeds d. All have version 1.
struct SlowFleet : testing::Test {
  Fleet fleet{chain_config()};

  void SetUp() override {
    for (const char* name : {"a", "b", "c", "d"}) {
      Fleet::Node& node = fleet.add(name);
      ASSERT_TRUE(fleet.run_until([&] { return node.worker->joined(); }));
    }
    publish(1);
    ASSERT_EQ(fleet.parent_of("d"), "c");
    ASSERT_EQ(fleet.parent_of("c"), "b");
  }
  void publish(std::uint64_t version) {
    fleet.publish(version, kChunks);
    ASSERT_TRUE(fleet.run_until_installed(version));
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
  fleet.set_chunk_time(fleet["c"], 5ms);
  fleet.publish(2, kChunks);
  fleet.run_for(50ms);
  Fleet::Node& e = fleet.add("e");
  ASSERT_TRUE(fleet.run_until([&] { return e.worker->installed_version() == Version{2}; }));
  fleet.run_for(10ms);
  EXPECT_TRUE(course(2, "e").joined_at.has_value());
  EXPECT_FALSE(course(2, "a").joined_at.has_value());
}

}  // namespace
}  // namespace weightcast::sim
