#include "base/files/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/base/descriptor_limit.h"

namespace weightcast {
namespace {

TEST(Descriptors, AreAsManyAsTheSystemAllows) {
  rlimit before{}, after{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const DescriptorLimit few(64);
  EXPECT_TRUE(raise_descriptor_limit().has_value());
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  EXPECT_TRUE(raise_descriptor_limit().has_value()) << "there is nothing to raise";
}

}  // namespace
}  // namespace weightcast
