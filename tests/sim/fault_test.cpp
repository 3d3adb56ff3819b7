#include "sim/fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/schedule.h"

namespace weightcast::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Faults, ReadsEveryClause) {
  const auto faults = parse_faults(
      "# two racks go away\n"
      "at 1.5s kill worker 3\n"
      "\n"
      "at 200ms partition workers 4-6 from origin oneway for 3s  # and come back\n"
      "at 0s throttle worker 1 to 5mbit for 1s\n"
      "at 1s corrupt origin by 4\n"
      "at 1s loss all by 0.01 for 2s\n"
      "at 2s skew worker 2 by 500ms\n"
      "at 3s publish\n"
      "at 3s choke worker 2 to 1mbit\n");
  ASSERT_TRUE(faults.has_value()) << faults.error().message();
  ASSERT_EQ(faults->size(), 8u);
  EXPECT_EQ((*faults)[0].kind, FaultKind::kKill);
  EXPECT_EQ((*faults)[0].at, milliseconds(1500));
  EXPECT_EQ((*faults)[0].node, 3u);
  EXPECT_EQ((*faults)[0].lasts, Duration::zero());
  EXPECT_EQ((*faults)[1].node, 4u);
  EXPECT_EQ((*faults)[1].node_last, 6u);
  EXPECT_EQ((*faults)[1].peer, 0u);
  EXPECT_TRUE((*faults)[1].one_way);
  EXPECT_EQ((*faults)[1].lasts, seconds(3));
  EXPECT_EQ((*faults)[2].rate, Rate::bits(5e6));
  EXPECT_EQ((*faults)[3].count, 4u);
  EXPECT_EQ((*faults)[4].probability, 0.01);
  EXPECT_EQ((*faults)[5].by, milliseconds(500));
  EXPECT_EQ((*faults)[6].kind, FaultKind::kPublish);
  EXPECT_EQ((*faults)[7].kind, FaultKind::kChoke);
  EXPECT_EQ((*faults)[7].rate, Rate::bits(1e6));
}

TEST(Faults, RefusesWhatItDoesNotUnderstandAndNamesTheLine) {
  for (const char* text : {"kill worker 3", "at 1 kill worker 3", "at 1s maim worker 3", "at 1s kill",
                           "at 1s kill worker 0", "at 1s kill workers 5-3", "at 1s throttle worker 1",
                           "at 1s throttle worker 1 to unlimited", "at 1s kill worker 1 to 5mbit",
                           "at 1s loss worker 1 by 2", "at 1s kill worker 1 for ever", "at 1s wipe worker 1"}) {
    const auto faults = parse_faults(std::string("# comment\n") + text);
    ASSERT_FALSE(faults.has_value()) << text;
    EXPECT_EQ(faults.error().code, Errc::kInvalidArgument);
    EXPECT_THAT(faults.error().detail, testing::HasSubstr("line 2")) << text;
  }
}

TEST(Faults, TextOfARandomFaultReadsBackAsItself) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    for (const Fault& fault : random_schedule(seed).faults) {
      const auto again = parse_faults(to_text(fault));
      ASSERT_TRUE(again.has_value()) << to_text(fault) << ": " << again.error().message();
      ASSERT_EQ(again->size(), 1u);
      EXPECT_EQ(to_text(again->front()), to_text(fault));
      EXPECT_EQ(again->front().at, fault.at) << to_text(fault);
    }
  }
}

}  // namespace
}  // namespace weightcast::sim
