#include "trainer/update/step_advantages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/loop/learner_fixture.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

/// A prompt token, and `rewards.size()` tokens that the policy sampled.
Sample sample_of(const std::vector<float>& rewards) {
  Sample sample;
  sample.tokens.assign(1 + rewards.size(), 5);
  sample.loss_mask.assign(1 + rewards.size(), 1);
  sample.loss_mask[0] = 0;
  sample.weights.assign(1 + rewards.size(), 1);
  sample.token_rewards = {0};
  sample.token_rewards.insert(sample.token_rewards.end(), rewards.begin(), rewards.end());
  for (const float reward : rewards) sample.reward += reward;
  return sample;
}

TrainingBatch batch_of(const std::vector<Sample>& samples) {
  TrainingBatch batch;
  for (const Sample& sample : samples) {
    batch.samples.push_back(sample);
    batch.rewards.push_back(sample.reward);
    batch.group_ids.push_back(0);
  }
  return batch;
}

LearnerConfig config(const std::vector<Setting>& settings) {
  return make_config(with(tiny_run("unused"), settings)).value();
}

TEST(StepAdvantagesTest, AreOneNumberPerRolloutInAGroup) {
  const auto result =
      step_advantages(batch_of({sample_of({0, 1}), sample_of({0})}), {}, config({{"advantage_norm", "none"}})).value();
  EXPECT_THAT(result.advantages, ElementsAre(ElementsAre(0.5F, 0.5F), ElementsAre(-0.5F)));
  EXPECT_TRUE(result.returns.empty());
  EXPECT_EQ(result.metrics.at("critic/advantages/max"), 0.5);
  EXPECT_EQ(result.metrics.count("critic/rewards/mean"), 0u);
}

TEST(StepAdvantagesTest, TakeKlOffRewards) {
  StepEstimates estimates;
  estimates.log_probs = {{-1, -2}, {-1}};
  estimates.ref_log_probs = {{-1.5F, -3}, {-1}};  // k1: 0.5 + 1, and 0
  const auto result = step_advantages(batch_of({sample_of({0, 1}), sample_of({0})}), estimates,
                                      config({{"advantage_norm", "none"}, {"kl_reward_coef", "2"}}))
                          .value();
  EXPECT_EQ(result.metrics.at("critic/rewards/min"), -2);  // 1 - 2 * 1.5
  EXPECT_THAT(result.advantages, ElementsAre(ElementsAre(-1, -1), ElementsAre(1)));

  // Per token, from the end on: 1 - 2 * 1, and then 0 - 2 * 0.5 more.
  const auto per_token =
      step_advantages(batch_of({sample_of({0, 1}), sample_of({0})}), estimates,
                      config({{"advantage_estimator", "gae"}, {"advantage_norm", "none"}, {"kl_reward_coef", "2"}}))
          .value();
  EXPECT_THAT(per_token.advantages, ElementsAre(ElementsAre(-2, -1), ElementsAre(0)));
}

/// SkyRL's numbers for r = [1, 2, 3], v = [.5, 1, 1.5] and lambda .5: returns [3.625, 4.25, 3].
TEST(StepAdvantagesTest, CompareTurnsRewardsWithTheValueHeads) {
  StepEstimates estimates;
  estimates.values = {{0.5F, 1, 1.5F}};
  const auto result =
      step_advantages(batch_of({sample_of({1, 2, 3})}), estimates,
                      config({{"advantage_estimator", "gae"}, {"advantage_norm", "none"}, {"gae_lambda", "0.5"}}))
          .value();
  EXPECT_THAT(result.returns, ElementsAre(ElementsAre(3.625F, 4.25F, 3)));
  EXPECT_THAT(result.advantages, ElementsAre(ElementsAre(3.125F, 3.25F, 1.5F)));
}

TEST(StepAdvantagesTest, AreWhitenedOverTheBatchUnderGae) {
  const auto result = step_advantages(batch_of({sample_of({1}), sample_of({3})}), {},
                                      config({{"advantage_estimator", "gae"}, {"value_loss_coef", "0"}}))
                          .value();
  EXPECT_THAT(result.advantages,
              ElementsAre(ElementsAre(FloatNear(-0.7071F, 1e-4F)), ElementsAre(FloatNear(0.7071F, 1e-4F))));
  EXPECT_TRUE(result.returns.empty()) << "nothing learns them without a value head";
}

}  // namespace
}  // namespace weightcast
