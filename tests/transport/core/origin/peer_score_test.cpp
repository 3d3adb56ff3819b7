#include "transport/core/origin/members/peer_score.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <limits>

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr Rate kLine = Rate::bits(100e6);
constexpr Instant kStart{1h};

PeerScore after(int ok, int failed, Rate rate = kLine) {
  PeerScore score;
  for (int i = 0; i < ok; ++i) score.handle_ok(kStart, rate);
  for (int i = 0; i < failed; ++i) score.handle_failed(kStart);
  return score;
}

TEST(PeerScore, IsTheConstantWithoutHistoryWhateverTheTime) {
  EXPECT_DOUBLE_EQ(PeerScore().score(kStart + 10h, kLine), 0.55);
}

TEST(PeerScore, ReachesOneAfterTenPerfectTransfers) {
  EXPECT_DOUBLE_EQ(after(10, 0).score(kStart, kLine), 1.0);
  EXPECT_DOUBLE_EQ(after(4, 0).score(kStart, kLine), 0.50 + 0.35 + 0.15 * 0.4);
}

TEST(PeerScore, WeighsSpeedByTheMeanOfTheLastTenOnly) {
  PeerScore score = after(5, 0, Rate::bits(1e6));
  for (int i = 0; i < 5; ++i) score.handle_ok(kStart, Rate::bits(50e6));
  EXPECT_DOUBLE_EQ(score.rate()->bits_per_s(), 25.5e6);
  for (int i = 0; i < 5; ++i) score.handle_ok(kStart, Rate::bits(50e6));
  EXPECT_DOUBLE_EQ(score.rate()->bits_per_s(), 50e6);
  EXPECT_DOUBLE_EQ(score.score(kStart, kLine), 0.50 * 0.5 + 0.35 + 0.15);
}

TEST(PeerScore, CountsAboveLineRateAsLineRate) {
  EXPECT_DOUBLE_EQ(after(10, 0, Rate::bits(900e6)).score(kStart, kLine), 1.0);
  EXPECT_DOUBLE_EQ(after(10, 0, Rate::bits(1e6)).score(kStart, Rate{}), 1.0);  // no line rate known
}

TEST(PeerScore, LosesStabilityWithTheFirstFailureAndSuccessWithEach) {
  EXPECT_DOUBLE_EQ(after(10, 1).score(kStart, kLine), 0.50 + 0.35 * 10 / 11);
  EXPECT_DOUBLE_EQ(after(10, 10).score(kStart, kLine), 0.50 + 0.35 * 0.5);
  EXPECT_DOUBLE_EQ(after(0, 3).score(kStart, kLine), 0);
  EXPECT_DOUBLE_EQ(after(0, 3).score(kStart, Rate{}), 0);
}

TEST(PeerScore, FadesWithAgeToSevenTenths) {
  const PeerScore score = after(10, 0);
  EXPECT_DOUBLE_EQ(score.score(kStart + 60s, kLine), 0.9);
  EXPECT_DOUBLE_EQ(score.score(kStart + 180s, kLine), 0.7);
  EXPECT_DOUBLE_EQ(score.score(kStart + 10h, kLine), 0.7);
}

TEST(PeerScore, SurvivesARestartOnAnotherClock) {
  const PeerScore before = after(7, 2, Rate::bits(80e6));
  const PeerScoreRecord record = before.record(kStart + 42s);
  EXPECT_EQ(record.age, 42s);
  const Instant rebooted{3s};
  const PeerScore restored(record, rebooted);
  EXPECT_EQ(restored.record(rebooted), record);
  EXPECT_DOUBLE_EQ(restored.score(rebooted + 10s, kLine), before.score(kStart + 52s, kLine));
}

TEST(PeerScore, TamesARecordThatIsNotPlausible) {
  PeerScoreRecord record{.rates = std::vector<Rate>(30, kLine), .ok = 30, .failed = 0};
  record.rates[29] = Rate{std::numeric_limits<double>::quiet_NaN()};
  record.rates[28] = Rate{-5};
  record.ok_in_a_row = record.failed_in_a_row = 9;
  record.age = -5h;
  const PeerScore score(record, kStart);
  EXPECT_EQ(score.record(kStart).rates.size(), PeerScore::kRatesMax);
  EXPECT_EQ(score.record(kStart).failed_in_a_row, 0u);
  EXPECT_NEAR(score.score(kStart, kLine), 0.5 + 0.35 + 0.15 * 0.9, 1e-12);
}

RC_GTEST_PROP(PeerScore, StaysBetweenZeroAndOne, ()) {
  PeerScore score;
  Instant now = kStart;
  for (const int step : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1000))) {
    now += std::chrono::seconds(step);
    if (step % 3 == 0) score.handle_failed(now);
    if (step % 3 == 1) score.handle_ok(now, Rate::bits(1e6 * step));
    const double value = score.score(now + 1s * step, kLine);
    RC_ASSERT(value >= 0 && value <= 1);
  }
}

}  // namespace
}  // namespace weightcast
