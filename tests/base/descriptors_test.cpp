#include "base/files/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace weightcast {
namespace {

TEST(Descriptors, AreAsManyAsTheSystemAllows) {
  rlimit before{}, after{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_TRUE(raise_descriptor_limit().has_value());
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  EXPECT_TRUE(raise_descriptor_limit().has_value()) << "there is nothing to raise";
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace weightcast
