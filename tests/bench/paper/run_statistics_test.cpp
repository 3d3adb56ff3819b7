#include "bench/paper/run_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weightcast::bench {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(RunStatistics, GivesTheMeanAndStudentsInterval) {
  const Estimate three = estimate_of(std::vector<double>{1, 2, 6});
  EXPECT_DOUBLE_EQ(three.mean, 3);
  ASSERT_TRUE(three.half_width.has_value());
  EXPECT_NEAR(*three.half_width, 4.303 * std::sqrt(7.0 / 3), 1e-9);
  EXPECT_TRUE(three.contains(9.5));
  EXPECT_FALSE(three.contains(9.6));
  const Estimate one = estimate_of(std::vector<double>{5});
  EXPECT_DOUBLE_EQ(one.mean, 5);
  EXPECT_FALSE(one.half_width.has_value());
  EXPECT_FALSE(one.contains(5)) << "one value says nothing of others";
}

TEST(RunStatistics, BootstrapsTheMeanOfAKnownSample) {
  // 400 values of mean 3 and standard deviation 10: its mean has a standard error of 0.5, and 1.96 of those either way.
  std::vector<double> values;
  for (int i = 0; i < 200; ++i) {
    values.push_back(13 + i * 1e-6);
    values.push_back(-7 - i * 1e-6);
  }
  const Interval interval = bootstrap_interval(values, 1);
  EXPECT_DOUBLE_EQ(interval.mean, 3);
  EXPECT_NEAR(interval.low, 3 - 0.98, 0.08);
  EXPECT_NEAR(interval.high, 3 + 0.98, 0.08);
  EXPECT_EQ(bootstrap_interval(values, 1).low, interval.low) << "it follows from the seed";
  EXPECT_NE(bootstrap_interval(values, 2).low, interval.low);
  const Interval equal = bootstrap_interval(std::vector<double>{2, 2, 2}, 1);
  EXPECT_EQ(equal.low, 2);
  EXPECT_EQ(equal.high, 2);
  const Interval skewed = bootstrap_interval(std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 0, 100}, 1);
  EXPECT_GT(skewed.high - skewed.mean, skewed.mean - skewed.low) << "as the sample is";
}

TEST(RunStatistics, TakesTheLastEntriesThatAreNumbers) {
  const std::vector<double> values{1, 2, kNaN, 4, kNaN};
  EXPECT_DOUBLE_EQ(last_mean(values, 2), 3);
  EXPECT_DOUBLE_EQ(last_mean(values, 10), 7.0 / 3);
  EXPECT_TRUE(std::isnan(last_mean(std::vector<double>{kNaN}, 1)));
}

TEST(RunStatistics, SeesACollapseByEachOfItsSigns) {
  const std::vector<double> calm(30, 0.1), good(30, 0.8);
  EXPECT_FALSE(collapse_of(calm, good).any());

  std::vector<double> losses = calm;
  losses[20] = -1.01;
  EXPECT_TRUE(collapse_of(losses, good).loss);
  losses[20] = 0.99;
  EXPECT_FALSE(collapse_of(losses, good).any());
  losses = calm;
  losses[3] = 5;
  EXPECT_FALSE(collapse_of(losses, good).any()) << "there is no median yet";
  losses[3] = kNaN;
  EXPECT_TRUE(collapse_of(losses, good).diverged);

  std::vector<double> rewards = good;
  std::fill(rewards.begin() + 10, rewards.begin() + 19, 0.39);
  EXPECT_FALSE(collapse_of(calm, rewards).any()) << "nine steps";
  rewards[19] = 0.39;
  EXPECT_TRUE(collapse_of(calm, rewards).reward);
  std::fill(rewards.begin() + 10, rewards.end(), 0.41);
  EXPECT_FALSE(collapse_of(calm, rewards).any()) << "more than half of the best";
}

}  // namespace
}  // namespace weightcast::bench
