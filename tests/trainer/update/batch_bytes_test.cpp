#include "trainer/update/batch_bytes.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

TrainingBatch batch_of_two() {
  TrainingBatch batch;
  batch.rewards = {0.5, -1};
  batch.group_ids = {3, 3};
  Sample one;
  one.tokens = {7, 8, 9};
  one.loss_mask = {0, 1, 1};
  one.weights = {0, 1, 0.5F};
  one.rollout_log_probs = {0, -1, -2};
  one.token_rewards = {0, 0, 0.5F};
  one.reward = 0.5;
  batch.samples = {one, one};
  batch.samples[1].rollout_log_probs.clear();
  batch.samples[1].reward = -1;
  return batch;
}

TEST(BatchBytes, ComeBackTheSame) {
  const TrainingBatch batch = batch_of_two();
  const TrainingBatch back = unpack_batch(pack_batch(batch)).value();
  EXPECT_EQ(back.rewards, batch.rewards);
  EXPECT_EQ(back.group_ids, batch.group_ids);
  ASSERT_EQ(back.samples.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const Sample &mine = back.samples[i], &theirs = batch.samples[i];
    EXPECT_EQ(mine.tokens, theirs.tokens);
    EXPECT_EQ(mine.loss_mask, theirs.loss_mask);
    EXPECT_EQ(mine.weights, theirs.weights);
    EXPECT_EQ(mine.rollout_log_probs, theirs.rollout_log_probs);
    EXPECT_EQ(mine.token_rewards, theirs.token_rewards);
    EXPECT_EQ(mine.reward, theirs.reward);
  }
  EXPECT_EQ(unpack_batch(pack_batch({}))->samples.size(), 0u);
}

TEST(BatchBytes, AreRefusedWhereverTheyAreCutOff) {
  const std::string bytes = pack_batch(batch_of_two());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(unpack_batch(bytes.substr(0, length)).has_value()) << length;
  }
  std::string damaged = bytes;
  damaged[0] = '\x7f';  // as many rewards as there are not
  EXPECT_FALSE(unpack_batch(damaged).has_value());
}

}  // namespace
}  // namespace weightcast
