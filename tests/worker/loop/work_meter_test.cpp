#include "worker/loop/work_meter.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSlots = 8;

/// Steps of an engine with `running` requests; every tenth begins a prompt of 30 tokens.
class WorkMeterTest : public testing::Test {
 protected:
  /// Seconds that they took.
  double pass(int steps, Duration fixed, Duration per_token, std::uint64_t running, double noise = 0) {
    Duration all{};
    for (int i = 0; i < steps; ++i) {
      const std::uint64_t tokens = i % 10 == 0 ? running + 30 : running;
      // As on a host that gives the processor to others now and then.
      const double longer = random_.unit() < 0.05 ? noise : 0;
      const Duration span = from_seconds(to_seconds(fixed + per_token * tokens) * (1 + longer));
      meter_.handle_step(span, running, tokens);
      all += span;
    }
    return to_seconds(all);
  }
  double full_s() const { return to_seconds(meter_.at_full_load()); }

  WorkMeter meter_{kSlots};
  Random random_{1};
};

TEST_F(WorkMeterTest, AllCountsBeforeThePartsAreKnown) {
  for (int i = 0; i < 10; ++i) meter_.handle_step(2ms, 2, 2);
  EXPECT_DOUBLE_EQ(full_s(), 0.020);
}

TEST_F(WorkMeterTest, EmptySlotsOfStepsThatCostTheSameAreNoWork) {
  const double before = full_s(), all = pass(1000, 4ms, 0ms, 2);
  EXPECT_NEAR((full_s() - before) / all, 2.0 / kSlots, 0.01);
}

TEST_F(WorkMeterTest, EmptySlotsOfStepsThatCostByTheTokenSaveTime) {
  const double all = pass(1000, 0ms, 1ms, 2);
  EXPECT_NEAR(full_s() / all, 1, 1e-6);
}

TEST_F(WorkMeterTest, BothPartsCountAsTheyAre) {
  pass(1000, 4ms, 1ms, 2);
  const double before = full_s();
  const double all = pass(1000, 4ms, 1ms, 2);
  // Of ten steps 4 ms of each are shared by four times as many, and 50 tokens cost the same as ever.
  EXPECT_NEAR((full_s() - before) / all, (10 * 4.0 / 4 + 50) / (10 * 4.0 + 50), 0.01);
}

TEST_F(WorkMeterTest, AFullEngineWorksAllTheTime) {
  const double all = pass(1000, 4ms, 1ms, kSlots);
  EXPECT_NEAR(full_s() / all, 1, 1e-9);
}

TEST_F(WorkMeterTest, ABusyHostDoesNotHideTheParts) {
  pass(5000, 4ms, 1ms, 2, 5);
  const double before = full_s();
  const double all = pass(5000, 4ms, 1ms, 2, 5);
  EXPECT_NEAR((full_s() - before) / all, 60.0 / 90, 0.06);
}

TEST_F(WorkMeterTest, FollowsAChange) {
  pass(1000, 4ms, 0ms, 2);
  pass(5000, 0ms, 1ms, 2);
  const double before = full_s();
  const double all = pass(1000, 0ms, 1ms, 2);
  EXPECT_NEAR((full_s() - before) / all, 1, 0.02);
}

/// Answers of 100 tokens of a server whose step takes `fixed` and `per_token` for each request.
void answer(WorkMeter& meter, Duration fixed, Duration per_token, std::uint64_t running) {
  meter.handle_answer(100 * (fixed + per_token * running), static_cast<double>(running), 100);
}

TEST_F(WorkMeterTest, AServersAnswersTellWhatItCouldDo) {
  for (int i = 0; i < 100; ++i) {
    for (const std::uint64_t running : {1, 2, 3}) answer(meter_, 6ms, 1ms, running);
  }
  EXPECT_DOUBLE_EQ(full_s(), 0) << "answers are no work by themselves";
  meter_.handle_work(10s, 2);
  // Two requests have 2 / (6 + 2) tokens in a ms, and eight would have 8 / (6 + 8).
  EXPECT_NEAR(full_s(), 10 * (2.0 / 8) / (8.0 / 14), 1e-6);
  meter_.handle_work(10s, kSlots);
  EXPECT_NEAR(full_s(), 10 * (2.0 / 8) / (8.0 / 14) + 10, 1e-6) << "a full one";
}

TEST_F(WorkMeterTest, AServerWithoutAnswersCountsAsFull) {
  meter_.handle_work(10s, 2);
  EXPECT_DOUBLE_EQ(full_s(), 10);
  for (int i = 0; i < 100; ++i) answer(meter_, 6ms, 1ms, 2);
  meter_.handle_work(10s, 2);
  EXPECT_DOUBLE_EQ(full_s(), 20) << "what it would take with more requests nobody has seen";
}

TEST_F(WorkMeterTest, IgnoresStepsThatDidNothing) {
  meter_.handle_step(1s, 0, 0);
  meter_.handle_step(0s, 2, 2);
  EXPECT_DOUBLE_EQ(full_s(), 0);
}

}  // namespace
}  // namespace weightcast
