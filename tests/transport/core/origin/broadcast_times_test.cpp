#include "transport/core/origin/history/broadcast_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

struct BroadcastTimesTest : testing::Test {
  Member& join(const std::string& name) {
    Member& member = members.by_name(name);
    members.connect(member, ConnId{++conns});
    times.handle_joined();
    return member;
  }
  std::vector<Version> install(const std::string& name, Version version, Instant at) {
    members.by_name(name).installed = version;
    return times.handle_installed(at, members);
  }

  const Instant start{1h};
  Membership members;
  BroadcastTimes times;
  std::uint64_t conns = 0;
};

TEST_F(BroadcastTimesTest, CountFromThePublicationToEachFraction) {
  for (const char* name : {"a", "b", "c", "d"}) join(name);
  EXPECT_THAT(times.handle_published(Version{1}, start), IsEmpty());
  EXPECT_THAT(times.count(start, members), IsEmpty());
  EXPECT_THAT(install("a", Version{1}, start + 1s), IsEmpty());
  EXPECT_FALSE(times.find(Version{1})->t50);
  EXPECT_THAT(install("b", Version{1}, start + 2s), IsEmpty());
  EXPECT_THAT(install("c", Version{1}, start + 3s), IsEmpty());
  EXPECT_THAT(install("d", Version{1}, start + 4s), ElementsAre(Version{1}));
  EXPECT_EQ(times.find(Version{1})->t50, 2s);
  EXPECT_EQ(times.find(Version{1})->t90, 4s);
  EXPECT_EQ(times.find(Version{1})->t100, 4s);
}

TEST_F(BroadcastTimesTest, WhoIsLostIsWaitedForNoMore) {
  join("a");
  Member& b = join("b");
  EXPECT_THAT(times.handle_published(Version{1}, start), IsEmpty());
  EXPECT_THAT(install("a", Version{1}, start + 1s), IsEmpty());
  members.disconnect(b);
  EXPECT_THAT(times.count(start + 5s, members), ElementsAre(Version{1}));
  EXPECT_EQ(times.find(Version{1})->t100, 5s);
}

TEST_F(BroadcastTimesTest, WhoJoinsIsWaitedFor) {
  join("a");
  EXPECT_THAT(times.handle_published(Version{1}, start), IsEmpty());
  EXPECT_THAT(times.count(start, members), IsEmpty());
  join("b");
  EXPECT_THAT(install("a", Version{1}, start + 1s), IsEmpty());
  EXPECT_EQ(times.find(Version{1})->t50, 1s);
  EXPECT_THAT(install("b", Version{1}, start + 2s), ElementsAre(Version{1}));
}

TEST_F(BroadcastTimesTest, NewerVersionEndsThosePublishedBefore) {
  join("a");
  EXPECT_THAT(times.handle_published(Version{1}, start), IsEmpty());
  EXPECT_THAT(times.handle_published(Version{2}, start + 1s), ElementsAre(Version{1}));
  EXPECT_THAT(times.handle_published(Version{3}, start + 2s), ElementsAre(Version{2})) << "each ends once";
}

TEST_F(BroadcastTimesTest, RestoredVersionCountsFromTheFirstWhoWantsIt) {
  times.restore(Version{4});
  join("a");
  EXPECT_THAT(times.count(start, members), IsEmpty());
  times.handle_wanted(start + 10s, Version{4});
  times.handle_wanted(start + 11s, Version{4});
  EXPECT_THAT(install("a", Version{4}, start + 12s), ElementsAre(Version{4}));
  EXPECT_EQ(times.find(Version{4})->t100, 2s);
}

TEST_F(BroadcastTimesTest, NobodyIsNoFraction) {
  EXPECT_THAT(times.handle_published(Version{1}, start), IsEmpty());
  EXPECT_THAT(times.count(start + 1s, members), IsEmpty());
  EXPECT_FALSE(times.find(Version{1})->t50);
}

}  // namespace
}  // namespace weightcast
