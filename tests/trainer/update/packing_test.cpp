#include "trainer/update/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightcast {
namespace {

using testing::ElementsAre;
using Members = std::vector<std::size_t>;

TEST(Packing, DividesEvenly) {
  EXPECT_THAT(divide(Members{4, 3, 2, 1, 0}, 2), ElementsAre(Members{4, 3, 2}, Members{1, 0}));
}

TEST(Packing, BoundsTokens) {
  const std::vector<std::size_t> lengths{5, 4, 1, 20, 3};
  EXPECT_THAT(pack(Members{0, 1, 2, 3, 4}, lengths, 10), ElementsAre(Members{0, 1, 2}, Members{3}, Members{4}));
  EXPECT_THAT(pack(Members{4, 0}, lengths, 7), ElementsAre(Members{4}, Members{0}));
  EXPECT_TRUE(pack(Members{}, lengths, 7).empty());
}

}  // namespace
}  // namespace weightcast
