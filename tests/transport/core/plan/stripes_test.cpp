#include "transport/core/plan/stripes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>

namespace weightcast {
namespace {

std::vector<std::uint32_t> first_stripes(const std::vector<std::uint32_t>& weights, std::uint32_t count) {
  const StripeMap map(weights);
  std::vector<std::uint32_t> stripes;
  for (std::uint32_t i = 0; i < count; ++i) stripes.push_back(map.stripe_of(ChunkIndex{i}));
  return stripes;
}

TEST(StripeMap, PutsEverythingInTheOnlyStripe) {
  EXPECT_EQ(first_stripes({7}, 3), (std::vector<std::uint32_t>{0, 0, 0}));
}

TEST(StripeMap, DealsEqualWeightsInTurn) {
  EXPECT_EQ(first_stripes({3, 3, 3}, 7), (std::vector<std::uint32_t>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(StripeMap, InterleavesUnequalWeightsSmoothly) {
  // Not 0 0 0 0 0 1 2: the heavy stripe never waits for a run of the others, nor they for it.
  EXPECT_EQ(first_stripes({5, 1, 1}, 14), (std::vector<std::uint32_t>{0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0}));
}

TEST(StripeMap, IsMadeOfWeightsWithinTheirLimitsOnly) {
  const auto ok = [](std::vector<std::uint32_t> weights) { return are_stripe_weights(weights); };
  EXPECT_TRUE(ok({1}));
  EXPECT_TRUE(ok({1, 1023}));
  EXPECT_TRUE(ok(std::vector<std::uint32_t>(kStripesMax, kStripeWeightMax)));
  EXPECT_FALSE(ok({}));
  EXPECT_FALSE(ok({0, 1}));
  EXPECT_FALSE(ok({1, kStripeWeightMax})) << "less than the least share";
  EXPECT_FALSE(ok({kStripeWeightMax + 1}));
  EXPECT_FALSE(ok(std::vector<std::uint32_t>(kStripesMax + 1, 1)));
}

RC_GTEST_PROP(StripeMap, GivesEachStripeItsShareInEveryPrefix, ()) {
  const auto weights =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange(1u, kStripeWeightMax + 1)));
  RC_PRE(are_stripe_weights(weights));
  const StripeMap map(weights);
  RC_ASSERT(map.count() == weights.size());
  const auto sum = std::accumulate(weights.begin(), weights.end(), 0u);
  std::vector<std::uint32_t> seen(weights.size());
  for (std::uint32_t i = 0; i < 4 * kStripeShareMin; ++i) {
    ++seen[map.stripe_of(ChunkIndex{i})];
    for (std::size_t s = 0; s < weights.size(); ++s) {
      const double fair = double(i + 1) * weights[s] / sum;
      RC_ASSERT(std::abs(seen[s] - fair) < 5);
    }
  }
}

TEST(StripeMap, HasAChunkOfTheLeastStripeInEveryRunOfThriceItsInverseShare) {
  const StripeMap map(std::vector<std::uint32_t>{1, kStripeShareMin - 1});
  std::uint32_t since = 0;
  for (std::uint32_t chunk = 0; chunk < kChunksMax; ++chunk) {
    since = map.stripe_of(ChunkIndex{chunk}) == 0 ? 0 : since + 1;
    ASSERT_LT(since, 3 * kStripeShareMin) << "at " << chunk;
  }
}

}  // namespace
}  // namespace weightcast
