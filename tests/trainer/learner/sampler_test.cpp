#include "trainer/learner/sampler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace weightcast {
namespace {

const std::vector<float> kLogits{std::log(0.1F), std::log(0.6F), std::log(0.3F)};

TEST(Sampler, DrawsByProbability) {
  Sampler sampler;
  Random random(1);
  std::vector<int> counts(3);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const SampledToken token = sampler.sample(kLogits, 1, 1, random.unit());
    EXPECT_NEAR(token.log_prob, kLogits[token.token], 1e-6);
    ++counts[token.token];
  }
  EXPECT_NEAR(counts[0], 0.1 * kDraws, 200);
  EXPECT_NEAR(counts[1], 0.6 * kDraws, 300);
}

TEST(Sampler, TakesTheMostProbableAtTemperatureZero) {
  EXPECT_EQ(Sampler().sample(kLogits, 0, 1, 0.999).token, 1);
  EXPECT_EQ(Sampler().sample(kLogits, 0, 1, 0.999).log_prob, 0);
}

TEST(Sampler, AppliesTheTemperature) {
  // Squared and scaled: 0.01, 0.36, 0.09 of 0.46.
  const SampledToken token = Sampler().sample(kLogits, 0.5, 1, 0.5);
  EXPECT_EQ(token.token, 1);
  EXPECT_NEAR(token.log_prob, std::log(0.36 / 0.46), 1e-6);
}

TEST(Sampler, ScalesWhatTopPKeeps) {
  Sampler sampler;
  // 0.6 is not enough for 0.8, and 0.9 is.
  for (const double uniform : {0.0, 0.3, 0.65, 0.7, 0.999999}) {
    const SampledToken token = sampler.sample(kLogits, 1, 0.8, uniform);
    EXPECT_NE(token.token, 0);
    EXPECT_NEAR(token.log_prob, std::log((token.token == 1 ? 0.6 : 0.3) / 0.9), 1e-6);
  }
  EXPECT_EQ(sampler.sample(kLogits, 1, 0.5, 0.999).token, 1);
  EXPECT_EQ(sampler.sample(kLogits, 1, 0.5, 0.999).log_prob, 0);
}

TEST(Sampler, NeverDrawsWhatHasNoProbability) {
  const std::vector<float> logits{0, -1000, -1000};
  EXPECT_EQ(Sampler().sample(logits, 1, 1, 0.9999999999999999).token, 0);
}

}  // namespace
}  // namespace weightcast
