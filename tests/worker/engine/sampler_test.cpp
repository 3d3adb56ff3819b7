#include "worker/engine/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"

namespace weightcast {
namespace {

const std::vector<float> kLogits{std::log(0.1F), std::log(0.6F), std::log(0.3F)};

SampledToken sample(std::vector<float> logits, const SamplingOptions& options, double uniform, std::size_t top = 0,
                    const std::vector<TokenId>& seen = {}) {
  return Sampler().sample(logits, options, seen, uniform, top).value();
}

SamplingOptions at_temperature(double temperature) {
  SamplingOptions options;
  options.temperature = temperature;
  return options;
}

TEST(Sampler, TakesTheMostProbableAtTemperatureZero) {
  SamplingOptions options = at_temperature(0);
  options.top_p = 0.1;
  const SampledToken token = sample(kLogits, options, 0.999, 3);
  EXPECT_EQ(token.token, 1);
  EXPECT_NEAR(token.log_prob, std::log(0.6), 1e-6);
  ASSERT_EQ(token.top.size(), 3u);
  EXPECT_EQ(token.top[1].token, 2);
  EXPECT_NEAR(token.top[1].log_prob, std::log(0.3), 1e-6);
  EXPECT_EQ(sample({1, 2, 2}, options, 0.999).token, 1);
}

TEST(Sampler, PenalisesTokensThatWereThereOnce) {
  SamplingOptions options;
  options.repetition_penalty = 2;
  // 4 becomes 2, and -1 becomes -2, however often they were there.
  const SampledToken token = sample({4, -1, 0}, options, 0, 3, {0, 1, 0, 1, 0});
  const double sum = std::exp(2) + std::exp(-2) + 1;
  EXPECT_EQ(token.top[1].token, 2);
  EXPECT_NEAR(token.top[0].log_prob, 2 - std::log(sum), 1e-6);
  EXPECT_NEAR(token.top[2].log_prob, -2 - std::log(sum), 1e-6);
}

/// A learner knows all tokens' distribution alone, at the temperature.
TEST(Sampler, GivesLogProbabilitiesOfAllTokens) {
  SamplingOptions by_p = at_temperature(0.5), by_k = by_p, by_share = by_p;
  by_p.top_p = 0.8;
  by_k.top_k = 2;
  by_share.min_p = 0.2;
  // Squared: 0.01, 0.36, 0.09 of 0.46.
  for (const SamplingOptions& options : {by_p, by_k, by_share}) {
    for (const double uniform : {0.0, 0.9}) {
      const SampledToken token = sample(kLogits, options, uniform, 3);
      EXPECT_NEAR(token.log_prob, std::log((token.token == 1 ? 0.36 : 0.09) / 0.46), 1e-6);
      ASSERT_EQ(token.top.size(), 3u);
      EXPECT_NEAR(token.top[2].log_prob, std::log(0.01 / 0.46), 1e-6) << "what is cut off, too";
    }
  }
}

TEST(Sampler, NeverDrawsWhatHasNoProbability) {
  EXPECT_EQ(sample({0, -1000, -1000}, {}, 0.9999999999999999).token, 0);
  EXPECT_EQ(sample({-1000, -1000, 0, -1000}, {}, 0).token, 2);
  std::vector<float> many(5000, -1000);
  many[2500] = 0;
  EXPECT_EQ(sample(many, {}, 0).token, 2500);
  EXPECT_EQ(sample(many, {}, 0.9999999999999999).token, 2500);
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::size_t place : {0, 1, 15, 16, 30, 32}) {
    std::vector<float> logits(33, 1);
    logits[place] = kNan;
    EXPECT_FALSE(Sampler().sample(logits, {}, {}, 0.5).has_value()) << place;
    EXPECT_FALSE(Sampler().score(logits, 1).has_value()) << place;
    logits[place] = kInfinity;
    EXPECT_FALSE(Sampler().sample(logits, {}, {}, 0.5).has_value()) << place;
  }
  std::vector<float> none(3, -kInfinity);
  EXPECT_FALSE(Sampler().sample(none, {}, {}, 0.5).has_value());
}

/// The same in the plainest way, in double.
SampledToken plain_sample(const std::vector<float>& logits, const SamplingOptions& options, double uniform) {
  std::vector<double> weights;
  const double most = *std::max_element(logits.begin(), logits.end());
  for (const float logit : logits) weights.push_back(std::exp((logit - most) / options.temperature));
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  double all = 0;
  for (const std::size_t i : order) all += weights[i];
  double sum = 0;
  std::vector<std::size_t> kept;
  for (const std::size_t i : order) {
    if (sum >= options.top_p * all || weights[i] < options.min_p * weights[order.front()]) break;
    sum += weights[i];
    kept.push_back(i);
  }
  std::sort(kept.begin(), kept.end());
  const double of_all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double left = uniform * sum;
  std::size_t chosen = kept.back();
  for (const std::size_t i : kept) {
    if (left < weights[i]) {
      chosen = i;
      break;
    }
    left -= weights[i];
  }
  return {static_cast<TokenId>(chosen), static_cast<float>(std::log(weights[chosen] / of_all)), {}};
}

RC_GTEST_PROP(Sampler, DrawsWhatThePlainestWayDraws, (std::uint64_t seed)) {
  Random random(seed);
  std::vector<float> logits(1 + random.below(random.chance(0.1) ? 5000 : 60));
  const double spread = random.chance(0.3) ? 0.1 : 5;
  for (float& logit : logits) logit = static_cast<float>(spread * (random.unit() + random.unit() - 1));
  SamplingOptions options;
  if (random.chance(0.5)) options.temperature = 0.2 + 2 * random.unit();
  if (random.chance(0.4)) options.top_k = static_cast<std::int64_t>(1 + random.below(400));
  if (random.chance(0.4)) options.top_p = 0.01 + 0.98 * random.unit();
  if (random.chance(0.4)) options.min_p = 0.5 * random.unit();
  const double uniform = random.unit();
  const SampledToken expected = plain_sample(logits, options, uniform);
  const SampledToken sampled = sample(logits, options, uniform);
  // FP32 sums may put a border, or the drawn number, on the other side of a token.
  if (sampled.token != expected.token) {
    const SampledToken before = plain_sample(logits, options, std::max(0.0, uniform - 1e-5));
    const SampledToken after = plain_sample(logits, options, std::min(0.9999999, uniform + 1e-5));
    RC_ASSERT(sampled.token == before.token || sampled.token == after.token);
  } else {
    RC_ASSERT(std::abs(sampled.log_prob - expected.log_prob) < 2e-3);
  }
}

TEST(Sampler, ScoresTokensOfThePlainDistribution) {
  const SampledToken token = Sampler().score(kLogits, 2, 1).value();
  EXPECT_EQ(token.token, 2);
  EXPECT_NEAR(token.log_prob, std::log(0.3), 1e-6);
  ASSERT_EQ(token.top.size(), 1u);
  EXPECT_EQ(token.top[0].token, 1);
}

}  // namespace
}  // namespace weightcast
