#include "transport/core/origin/members/sending_rate.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

using namespace std::chrono_literals;

struct SendingRateTest : testing::Test {
  SendingRate rate;
  Instant now{1h};
  std::uint64_t sent = 0;

  void send(double bytes_per_s, Duration span) {
    for (const Instant until = now + span; now < until;) {
      now += 100ms;
      sent += static_cast<std::uint64_t>(bytes_per_s / 10);
      (void)rate.handle_sent(now, sent);
    }
  }
};

TEST_F(SendingRateTest, IsTheMeanWithoutWhatFilledTheKernelFirst) {
  send(0, 2s);
  send(50e6, 500ms);
  EXPECT_FALSE(rate.best().limited());
  send(30e6, 4s);
  EXPECT_NEAR(rate.best().bytes_per_s, 30e6, 1e5);
}

TEST_F(SendingRateTest, OfAShortTransferIsNotKnown) {
  send(0, 2s);
  send(50e6, 500ms);
  send(0, 5s);
  EXPECT_FALSE(rate.best().limited());
}

TEST_F(SendingRateTest, IsTheGreatestSinceItWasForgotten) {
  send(30e6, 5s);
  send(0, 5s);
  send(10e6, 5s);
  EXPECT_NEAR(rate.best().bytes_per_s, 30e6, 1e5);
  rate.forget();
  send(0, 5s);
  send(10e6, 5s);
  EXPECT_NEAR(rate.best().bytes_per_s, 10e6, 1e5);
}

TEST_F(SendingRateTest, BeginsAnewAfterAGap) {
  send(30e6, 1s);
  now += SendingRate::kGapMax + 1s;
  sent += 1'000'000'000;
  EXPECT_FALSE(rate.handle_sent(now, sent).has_value());
  send(30e6, 5s);
  EXPECT_NEAR(rate.best().bytes_per_s, 30e6, 1e5);
}

}  // namespace
}  // namespace weightcast
