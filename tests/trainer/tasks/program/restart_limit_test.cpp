#include "trainer/tasks/program/restart_limit.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

using namespace std::chrono_literals;

TEST(RestartLimit, AllowsAsManyWithinTheWindow) {
  RestartLimit limit(2, 1h);
  const Instant start{};
  EXPECT_TRUE(limit.take(start));
  EXPECT_TRUE(limit.take(start + 30min));
  EXPECT_FALSE(limit.take(start + 59min));
  EXPECT_EQ(limit.taken(), 2u);
  EXPECT_TRUE(limit.take(start + 1h));
  EXPECT_FALSE(limit.take(start + 89min));
  EXPECT_TRUE(limit.take(start + 90min));
}

TEST(RestartLimit, OfNoneAllowsNone) { EXPECT_FALSE(RestartLimit(0, 1h).take(Instant{})); }

}  // namespace
}  // namespace weightcast
