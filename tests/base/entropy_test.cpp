#include "base/entropy.h"

#include <gtest/gtest.h>

#include <set>

namespace weightcast {
namespace {

TEST(HostEntropy, GivesAnotherNumberEachTimeAndUsesAllBits) {
  std::set<std::uint64_t> seen;
  std::uint64_t set_once = 0;
  std::uint64_t clear_once = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t number = host_entropy();
    seen.insert(number);
    set_once |= number;
    clear_once |= ~number;
  }
  EXPECT_EQ(seen.size(), 1000);
  EXPECT_EQ(set_once, ~std::uint64_t{0});
  EXPECT_EQ(clear_once, ~std::uint64_t{0});
}

}  // namespace
}  // namespace weightcast
