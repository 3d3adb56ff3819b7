#include "transport/core/burst_meter.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr Instant kStart{std::chrono::hours(1)};

/// A burst of which each message takes `each`, after a first half that came at once.
std::optional<BurstMeter::Result> burst(BurstMeter& meter, Instant start, std::uint32_t messages, Duration each) {
  std::optional<BurstMeter::Result> result;
  for (std::uint32_t i = 1; i <= messages; ++i) {
    const Instant at = start + each * std::max<int>(0, int(i) - int(messages / 2));
    result = meter.handle(at, kBurstMessageBytes, std::uint64_t{messages - i} * kBurstMessageBytes);
    EXPECT_EQ(result.has_value(), i == messages);
  }
  return result;
}

TEST(BurstMeter, MeasuresTheSecondHalfAlone) {
  BurstMeter meter;
  const auto result = burst(meter, kStart, 16, 4ms);
  EXPECT_EQ(result->lasted, 32ms);
  EXPECT_DOUBLE_EQ(result->rate.bytes_per_s, kBurstMessageBytes / 0.004);
}

TEST(BurstMeter, MeasuresEachBurstAnew) {
  BurstMeter meter;
  (void)burst(meter, kStart, 16, 4ms);
  EXPECT_DOUBLE_EQ(burst(meter, kStart + 1h, 64, 2ms)->rate.bytes_per_s, kBurstMessageBytes / 0.002);
}

TEST(BurstMeter, BeginsAnewWhereABurstWasBrokenOff) {
  BurstMeter meter;
  (void)meter.handle(kStart, 1000, 9000);
  EXPECT_DOUBLE_EQ(burst(meter, kStart + 1h, 8, 4ms)->rate.bytes_per_s, kBurstMessageBytes / 0.004);
}

TEST(BurstMeter, GivesAFiniteRateForWhatComesAtOnce) {
  BurstMeter meter;
  EXPECT_LE(burst(meter, kStart, 16, 0ms)->rate.bytes_per_s, 16 * kBurstMessageBytes / 0.001);
  EXPECT_EQ(meter.handle(kStart, 0, 0)->rate.bytes_per_s, 0);
}

TEST(BurstMeter, IgnoresWhatNobodySends) {
  BurstMeter meter;
  EXPECT_FALSE(meter.handle(kStart, ~std::uint64_t{0}, 1).has_value());
  EXPECT_FALSE(meter.handle(kStart, 1, ~std::uint64_t{0}).has_value());
}

}  // namespace
}  // namespace weightcast
