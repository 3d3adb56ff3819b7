#include "worker/engine/version_policy.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

VersionName name(std::uint32_t run, std::uint64_t version) { return {run, Version{version}}; }

TEST(VersionPolicy, PreparesTheNewestOnce) {
  VersionPolicy policy;
  EXPECT_FALSE(policy.next().has_value());
  policy.handle_installed(name(1, 3));
  policy.handle_installed(name(1, 5));
  policy.handle_installed(name(1, 4));
  EXPECT_EQ(policy.next(), name(1, 5));
  EXPECT_EQ(policy.next(), name(1, 5));
  policy.handle_settled(name(1, 5));
  EXPECT_FALSE(policy.next().has_value());
  policy.handle_installed(name(1, 5));  // told again after a disconnection
  EXPECT_FALSE(policy.next().has_value());
}

TEST(VersionPolicy, TakesAGreaterRunWhateverItsNumbers) {
  VersionPolicy policy;
  policy.handle_installed(name(1, 100));
  policy.handle_settled(name(1, 100));
  policy.handle_installed(name(2, 1));
  EXPECT_EQ(policy.next(), name(2, 1));
  policy.handle_installed(name(1, 101));
  EXPECT_EQ(policy.next(), name(2, 1));
}

TEST(VersionPolicy, TakesTheOneThatCameMeanwhile) {
  VersionPolicy policy;
  policy.handle_installed(name(1, 1));
  policy.handle_installed(name(1, 2));
  policy.handle_settled(name(1, 1));
  EXPECT_EQ(policy.next(), name(1, 2));
}

}  // namespace
}  // namespace weightcast
