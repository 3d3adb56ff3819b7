#include "trainer/replay/sequence_set.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <set>

namespace weightcast {
namespace {

using Seen = SequenceSet::Seen;

TEST(SequenceSet, TakesTheEndsOfTheRange) {
  SequenceSet set(4);
  for (const std::uint64_t n : {std::numeric_limits<std::uint64_t>::max(), std::uint64_t{0}}) {
    EXPECT_EQ(set.look_up(n), Seen::kNew);
    set.insert(n);
    EXPECT_EQ(set.look_up(n), Seen::kSeen);
  }
  EXPECT_EQ(set.look_up(1), Seen::kNew);
  EXPECT_EQ(set.look_up(std::numeric_limits<std::uint64_t>::max() - 1), Seen::kNew);
}

TEST(SequenceSet, ForgetsTheOldestRangeBeyondItsBound) {
  SequenceSet set(2);
  for (const std::uint64_t n : {10u, 20u, 30u}) set.insert(n);
  EXPECT_EQ(set.look_up(10), Seen::kTooOld);
  EXPECT_EQ(set.look_up(5), Seen::kTooOld);
  EXPECT_EQ(set.look_up(11), Seen::kNew);
  EXPECT_EQ(set.look_up(20), Seen::kSeen);
}

TEST(SequenceSet, ARunWithoutGapsTakesOneRange) {
  SequenceSet set(1);
  for (std::uint64_t n = 0; n < 10'000; ++n) set.insert(n);
  EXPECT_EQ(set.look_up(0), Seen::kSeen);
  EXPECT_EQ(set.look_up(10'000), Seen::kNew);
}

RC_GTEST_PROP(SequenceSet, SaysWhatASetSays, ()) {
  SequenceSet set(1000);
  std::set<std::uint64_t> model;
  for (const auto n : *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 60))) {
    RC_ASSERT((set.look_up(n) == Seen::kSeen) == (model.count(n) != 0));
    if (model.insert(n).second) set.insert(n);
    for (std::uint64_t i = 0; i < 60; ++i) {
      RC_ASSERT((set.look_up(i) == Seen::kSeen) == (model.count(i) != 0));
    }
  }
}

}  // namespace
}  // namespace weightcast
