#include "transport/node/payload/packing_speed.h"

#include <gtest/gtest.h>

#include <chrono>

namespace weightcast {
namespace {

TEST(PackingSpeed, IsMeasuredInAMomentAndPossible) {
  const auto start = std::chrono::steady_clock::now();
  const PackingSpeed speed = measure_packing_speed();
  // Some 10 ms on an idle host; the bound is for one that is busy with other tests, under a sanitizer.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_GT(speed.pack_bytes_per_s, 1e6);
  EXPECT_GT(speed.unpack_bytes_per_s, 1e6);
  EXPECT_LT(speed.pack_bytes_per_s, 100e9);
  EXPECT_LT(speed.unpack_bytes_per_s, 100e9);
}

}  // namespace
}  // namespace weightcast
