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

TEST(StripeMap, InterleavesUnequalWeightsSmoothly) {
  // Not 0 0 0 0 0 1 2: the heavy stripe never waits for a run of the others, nor they for it.
  EXPECT_EQ(first_stripes({5, 1, 1}, 9), (std::vector<std::uint32_t>{0, 0, 1, 0, 2, 0, 0, 0, 0}));
}

RC_GTEST_PROP(StripeMap, GivesEachStripeItsShareInEveryPrefix, ()) {
  const auto weights = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange(1u, 41u)));
  RC_PRE(weights.size() <= 64);
  const StripeMap map(weights);
  RC_ASSERT(map.count() == weights.size());
  const auto sum = std::accumulate(weights.begin(), weights.end(), 0u);
  std::vector<std::uint32_t> seen(weights.size());
  for (std::uint32_t i = 0; i < 2 * sum; ++i) {
    ++seen[map.stripe_of(ChunkIndex{i})];
    for (std::size_t s = 0; s < weights.size(); ++s) {
      const double fair = double(i + 1) * weights[s] / sum;
      RC_ASSERT(std::abs(seen[s] - fair) < double(weights.size()));
    }
  }
  for (std::size_t s = 0; s < weights.size(); ++s) RC_ASSERT(seen[s] == 2 * weights[s]);
}

}  // namespace
}  // namespace weightcast
