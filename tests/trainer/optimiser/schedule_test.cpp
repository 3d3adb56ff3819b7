#include "trainer/optimiser/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weightcast {
namespace {

using enum LearningRateDecay;

TEST(LearningRate, WarmsUpToThePeak) {
  const LearningRateSchedule schedule{.peak = 8, .decay = kConstant, .warmup_updates = 4};
  const double expected[] = {2, 4, 6, 8, 8, 8};
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_DOUBLE_EQ(learning_rate(schedule, i), expected[i]) << i;
  EXPECT_DOUBLE_EQ(learning_rate({.peak = 3}, 0), 3);
}

TEST(LearningRate, DecaysToNothing) {
  LearningRateSchedule schedule{.peak = 8, .decay = kLinear, .warmup_updates = 2, .updates_total = 6};
  const double linear[] = {4, 8, 8, 6, 4, 2, 0, 0};
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_NEAR(learning_rate(schedule, i), linear[i], 1e-12) << i;
  schedule.decay = kCosine;
  const double half = std::sqrt(0.5), cosine[] = {4, 8, 8, 4 + 4 * half, 4, 4 - 4 * half, 0, 0};
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_NEAR(learning_rate(schedule, i), cosine[i], 1e-12) << i;
}

TEST(LearningRate, RefusesWhatMakesNoSchedule) {
  EXPECT_TRUE(validate(LearningRateSchedule{}).has_value());
  EXPECT_TRUE(validate({.decay = kCosine, .warmup_updates = 5, .updates_total = 6}).has_value());
  EXPECT_EQ(validate({.peak = -1}).error().detail, "learning rate: the peak is -1");
  EXPECT_EQ(validate({.decay = kCosine, .warmup_updates = 5, .updates_total = 5}).error().detail,
            "learning rate: 5 updates in all do not suffice for 5 of warm-up and a cosine decay");
}

}  // namespace
}  // namespace weightcast
