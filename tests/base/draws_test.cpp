#include "base/draws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace weightcast {
namespace {

TEST(Draws, ShufflesBySeed) {
  EXPECT_EQ(shuffled(100, 1), shuffled(100, 1));
  EXPECT_NE(shuffled(100, 1), shuffled(100, 2));
  EXPECT_THAT(shuffled(3, 5), testing::UnorderedElementsAre(0, 1, 2));
}

TEST(Draws, StreamsAndNumbersAreApart) {
  std::set<std::uint64_t> all;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint64_t stream = 0; stream < 10; ++stream) {
      for (std::uint64_t n = 0; n < 10; ++n) all.insert(drawn(seed, stream, n));
    }
  }
  EXPECT_EQ(all.size(), 1000u);
  EXPECT_EQ(drawn(1, 2, 3), drawn(1, 2, 3));
}

}  // namespace
}  // namespace weightcast
