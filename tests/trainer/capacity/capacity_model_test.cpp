#include "trainer/capacity/capacity_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weightcast {
namespace {

/// T and the broadcasts of ECHO-2's Table 2; R cancels out, so it is any. Nine machines give 1.174 mu_min of the full
/// system.
constexpr double kStep = 1600;
constexpr double kNine = 1.174;
LoopRates table_2(double t_bcast_s) { return {kStep, 128, t_bcast_s, 2}; }
double mu_of_nine() { return kNine * mu_min(table_2(1437)); }

TEST(CapacityModel, LeastRateFulfilsTheOverlapWithEquality) {
  for (const LoopRates& rates : {LoopRates{10, 64, 4, 1}, LoopRates{10, 64, 15, 2}, table_2(1437)}) {
    const double mu = mu_min(rates), kappa = static_cast<double>(rates.kappa);
    EXPECT_NEAR(rates.t_bcast_s + kappa * rates.rollouts_per_step / mu, kappa * rates.step_s, 1e-9 * rates.step_s);
    EXPECT_NEAR(wait_per_publication_s(rates, mu), 0, 1e-9 * rates.step_s);
    EXPECT_GT(wait_per_publication_s(rates, 0.999 * mu), 0);
    EXPECT_EQ(wait_per_publication_s(rates, 1.001 * mu), 0);
  }
}

TEST(CapacityModel, NoRateSufficesIfABroadcastTakesAsLongAsTheSteps) {
  EXPECT_TRUE(std::isinf(mu_min({10, 64, 20, 2})));
  EXPECT_TRUE(std::isinf(mu_min({10, 64, 25, 2})));
  EXPECT_DOUBLE_EQ(wait_per_publication_s({10, 64, 25, 2}, 1e9), 5 + 2 * 64 / 1e9);
}

TEST(CapacityModel, BubbleIsTheShareOfWaiting) {
  const double wait_s = wait_per_publication_s(table_2(1830), mu_of_nine());
  EXPECT_DOUBLE_EQ(bubble_ratio(table_2(1830), mu_of_nine()), wait_s / (2 * kStep + wait_s));
  EXPECT_EQ(bubble_ratio(table_2(1437), mu_of_nine()), 0);
  EXPECT_EQ(bubble_ratio(table_2(1437), 0), 1);
}

TEST(CapacityModel, BoundsStaleness) {
  // One step of broadcast and rollouts is no lag beyond kappa.
  EXPECT_EQ(staleness_bound({10, 64, 4, 1}, 64.0 / 6), 1u);
  EXPECT_EQ(staleness_bound({10, 64, 4, 1}, 64.0 / 6.5), 2u);
  EXPECT_EQ(staleness_bound({10, 64, 4, 5}, 64.0 / 6), 5u);
  EXPECT_EQ(staleness_bound_of_oldest_token({10, 64, 4, 1}, 64.0 / 6, 10), 2u);
  EXPECT_EQ(staleness_bound_of_oldest_token({10, 64, 4, 1}, 64.0 / 6, 10.5), 3u);
}

TEST(CapacityModel, StalenessIsBoundedWhereTheRateSuffices) {
  for (const std::uint64_t kappa : {1, 2, 3, 5, 10}) {
    for (const double t_bcast_s : {0.5, 3.0, 7.0, 9.5}) {
      const LoopRates rates{10, 64, t_bcast_s, kappa};
      EXPECT_LE(staleness_bound(rates, mu_min(rates)), kappa + 1)
          << kappa << " " << t_bcast_s;  // so kappa = S - 1 suffices
    }
  }
}

TEST(CapacityModel, BoundsAreFiniteForAnyNumbers) {
  EXPECT_LT(staleness_bound({1e-12, 1e12, 1e12, 1}, 1e-12), std::uint64_t{1} << 60);
}

}  // namespace
}  // namespace weightcast
