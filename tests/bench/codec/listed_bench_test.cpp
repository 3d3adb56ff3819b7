#include "bench/codec/listed_bench.h"

#include <gtest/gtest.h>

namespace weightcast::bench {
namespace {

TEST(ListedBench, MeasuresListsCloseToTheEntropy) {
  ListedBenchOptions options;
  options.size_bytes = 16 << 20;
  options.repetitions = 1;
  std::size_t told = 0;
  const auto cases = run_listed_bench(options, [&](const ListedCase&) { ++told; });
  ASSERT_TRUE(cases.has_value()) << cases.error().message();
  ASSERT_EQ(cases->size(), options.shares.size());
  EXPECT_EQ(told, cases->size());
  for (const ListedCase& c : *cases) {
    EXPECT_NEAR(double(c.changed) / (8 << 20), c.share, 0.05 * c.share);
    EXPECT_GT(c.bits_per_changed, 0.98 * c.entropy_bits_per_changed);
    EXPECT_LT(c.bits_per_changed, 1.08 * c.entropy_bits_per_changed);
    EXPECT_GT(c.decode_s_per_gib, 0);
  }
}

TEST(ListedBench, RefusesSharesAndSizesThatGiveNothing) {
  EXPECT_EQ(run_listed_bench({.size_bytes = 1000}).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(run_listed_bench({.size_bytes = 8 << 20, .shares = {0}}).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(run_listed_bench({.size_bytes = 8 << 20, .shares = {1e-12}}).error().code, Errc::kInvalidArgument);
}

}  // namespace
}  // namespace weightcast::bench
