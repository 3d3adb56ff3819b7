#include "transport/node/node_meters.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

using namespace std::chrono_literals;

local::NodeStatus described(const NodeMeters& meters) {
  local::NodeStatus status;
  meters.describe(status);
  return status;
}

TEST(NodeMeters, TellsNothingOfPhasesThatWereNeverIn) { EXPECT_TRUE(described(NodeMeters()).phases.empty()); }

TEST(NodeMeters, CountsByHowLongAPhaseTook) {
  NodeMeters meters;
  meters.note(NodeMeters::Phase::kTake, 1ms);     // a bucket holds its own bound
  meters.note(NodeMeters::Phase::kTake, 1001us);  // the next one
  meters.note(NodeMeters::Phase::kTake, 600s);
  meters.note(NodeMeters::Phase::kTake, 601s);  // beyond all
  const local::NodeStatus status = described(meters);
  ASSERT_EQ(status.phases.size(), 1u);
  const local::PhaseTimes& take = status.phases[0];
  EXPECT_EQ(take.phase, "take");
  EXPECT_EQ(take.count, 4u);
  EXPECT_NEAR(take.sum_s, 1201.002001, 1e-9);
  EXPECT_EQ(take.buckets[0].at_most_s, 0.001);
  EXPECT_EQ(take.buckets[0].count, 1u);
  EXPECT_EQ(take.buckets[1].count, 1u);
  EXPECT_EQ(take.buckets.back().count, 1u);
  for (std::size_t i = 1; i < take.buckets.size(); ++i) {
    EXPECT_LT(take.buckets[i - 1].at_most_s, take.buckets[i].at_most_s);
  }
}

TEST(NodeMeters, TellsPhasesApart) {
  NodeMeters meters;
  meters.note(NodeMeters::Phase::kSwitch, 2s);
  meters.note(NodeMeters::Phase::kTransfer, 3s);
  meters.note(NodeMeters::Phase::kEngine, 4s);
  const local::NodeStatus status = described(meters);
  ASSERT_EQ(status.phases.size(), 3u);
  EXPECT_EQ(status.phases[0].phase, "transfer");
  EXPECT_EQ(status.phases[0].sum_s, 3);
  EXPECT_EQ(status.phases[1].phase, "switch");
  EXPECT_EQ(status.phases[1].sum_s, 2);
  EXPECT_EQ(status.phases[2].phase, "engine");
}

}  // namespace
}  // namespace weightcast
