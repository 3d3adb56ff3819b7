#include "trainer/loss/gae.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weightcast {
namespace {

using Values = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void expect_near(const Values& got, const Values& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12) << i;
}

/// SkyRL's test_ppo_utils.py.
TEST(Gae, ReferenceOfSkyRl) {
  const Values rewards{1, 2, 3}, values{0.5, 1, 1.5};
  const auto returns = [&](double gamma, double lambda) {
    return gae(rewards, values, {}, {.gamma = gamma, .lambda = lambda})->returns;
  };
  expect_near(returns(1, 1), {6, 5, 3});
  expect_near(returns(0.5, 1), {2.75, 3.5, 3});
  expect_near(returns(1, 0.5), {3.625, 4.25, 3});
  expect_near(gae(rewards, values, {}, {.lambda = 0.5})->advantages, {3.125, 3.25, 1.5});
}

TEST(Gae, WithoutAValueHeadGivesDiscountedRewardsToCome) {
  const Gae result = *gae(Values{1, 2, 3}, std::nullopt, {}, {.gamma = 0.5, .lambda = 0.1});
  expect_near(result.advantages, {2.75, 3.5, 3});
  EXPECT_EQ(result.advantages, result.returns);
}

TEST(Gae, SkipsWhatTheMaskLeavesOut) {
  const Values rewards{1, kNan, 2, kNan, 3}, values{0.5, kNan, 1, 1e300, 1.5};
  const std::vector<std::uint8_t> mask{1, 0, 1, 0, 1};
  const Gae result = *gae(rewards, values, mask, {.lambda = 0.5});
  expect_near(result.returns, {3.625, 0, 4.25, 0, 3});
  expect_near(result.advantages, {3.125, 0, 3.25, 0, 1.5});
}

TEST(Gae, RefusesBadInput) {
  const Values rewards{1, 2};
  const auto refusal = [](const auto& result) { return result.error().detail; };
  EXPECT_EQ(refusal(gae(rewards, Values{1}, {}, {})), "advantages: 2 rewards and 1 values");
  EXPECT_EQ(refusal(gae(rewards, std::nullopt, std::vector<std::uint8_t>{1}, {})),
            "advantages: 2 rewards and a mask of 1");
  EXPECT_EQ(refusal(gae(rewards, std::nullopt, {}, {.gamma = 2})), "advantages: gamma is 2, not in [0, 1]");
  EXPECT_EQ(refusal(gae(rewards, std::nullopt, {}, {.lambda = kNan})), "advantages: lambda is nan, not in [0, 1]");
  EXPECT_EQ(refusal(gae(Values{1, kNan}, std::nullopt, {}, {})), "advantages: rewards[1] is nan");
  EXPECT_EQ(refusal(gae(rewards, Values{kNan, 1}, {}, {})), "advantages: values[0] is nan");
}

TEST(Whiten, GivesMeanZeroAndVarianceOne) {
  Values values{1, kNan, 3, 5};
  const std::vector<std::uint8_t> mask{1, 0, 1, 1};
  whiten(values, mask);
  expect_near(values, {-2 / std::sqrt(4 + 1e-8), 0, 0, 2 / std::sqrt(4 + 1e-8)});
  Values one{7};
  whiten(one, {});
  EXPECT_EQ(one, (Values{0}));
  Values none{kNan, 2};
  whiten(none, std::vector<std::uint8_t>{0, 0});
  EXPECT_EQ(none, (Values{0, 0}));
}

TEST(Gae, RefusesSumsThatOverflow) {
  const Values rewards{1e308, 1e308};
  const auto result = gae(rewards, std::nullopt, {}, {});
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().detail.find("from slot 0 on overflow"), std::string::npos) << result.error().detail;
}

}  // namespace
}  // namespace weightcast
