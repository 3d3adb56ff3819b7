#include "base/rate_limiter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>

namespace weightcast {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct Passed {
  Instant at;
  std::size_t bytes;
};

// Sends greedily, waking up late by what `lateness` says, and returns what passed when.
template <typename Lateness>
std::vector<Passed> send_greedily(Rate rate, Duration span, Lateness lateness) {
  RateLimiter limiter(rate);
  std::vector<Passed> passed;
  const Instant start{std::chrono::seconds(5)};
  Instant now = start;
  while (now - start < span) {
    if (const std::size_t bytes = limiter.available(now); bytes > 0) {
      limiter.consume(now, bytes);
      passed.push_back({now, bytes});
    }
    now = limiter.ready_at(now, limiter.quantum_bytes()) + lateness();
  }
  return passed;
}

std::size_t most_in_any(Duration window, const std::vector<Passed>& passed) {
  std::deque<Passed> inside;
  std::size_t bytes = 0, most = 0;
  for (const Passed& p : passed) {
    inside.push_back(p);
    bytes += p.bytes;
    while (p.at - inside.front().at >= window) {
      bytes -= inside.front().bytes;
      inside.pop_front();
    }
    most = std::max(most, bytes);
  }
  return most;
}

TEST(RateLimiter, UnlimitedLetsEverythingPass) {
  RateLimiter limiter{Rate{}};
  EXPECT_GT(limiter.available(Instant{}), std::size_t{1} << 60);
  limiter.consume(Instant{}, 1 << 30);
  EXPECT_EQ(limiter.ready_at(Instant{}, 1 << 30), Instant{});
}

RC_GTEST_PROP(RateLimiter, HoldsItsRateAndItsBurstsUnderLateTimers, ()) {
  const Rate rate = Rate::bits(*rc::gen::element(2e6, 20e6, 100e6, 300e6, 1e9, 8e9));
  const auto late_share = *rc::gen::container<std::vector<int>>(64, rc::gen::inRange(0, 1000));
  const Duration late_max = from_seconds(double(RateLimiter::kWindowSlackBytes) / 2 / rate.bytes_per_s);
  std::size_t i = 0;
  const auto passed = send_greedily(rate, std::chrono::seconds(2), [&] {
    return std::min<Duration>(milliseconds(10), late_max * late_share[i++ % late_share.size()] / 1000);
  });
  std::size_t total = 0;
  for (const Passed& p : passed) total += p.bytes;
  RC_ASSERT(double(total) >= 2 * 0.97 * rate.bytes_per_s);
  RC_ASSERT(double(most_in_any(std::chrono::seconds(1), passed)) <= 1.03 * rate.bytes_per_s);
  RC_ASSERT(double(most_in_any(RateLimiter::kWindow, passed)) <=
            rate.bytes_per_s * to_seconds(RateLimiter::kWindow) + double(RateLimiter::kWindowSlackBytes));
}

TEST(RateLimiter, ReadyAtIsNotTooEarly) {
  RateLimiter limiter(Rate::bits(100e6));
  const Instant start{milliseconds(1)};
  limiter.consume(start, limiter.available(start));
  const Instant ready = limiter.ready_at(start, limiter.quantum_bytes());
  EXPECT_GT(ready, start);
  EXPECT_GE(limiter.available(ready + microseconds(1)), limiter.quantum_bytes() - 1);
}

TEST(RateLimiter, DebtIsPaidBeforeAnythingElsePasses) {
  RateLimiter limiter(Rate{1e6});
  const Instant start{milliseconds(1)};
  limiter.consume(start, limiter.available(start) + 500'000);
  EXPECT_EQ(limiter.available(start + milliseconds(499)), 0u);
  const Instant ready = limiter.ready_at(start, 2000);
  EXPECT_NEAR(to_seconds(ready - start), 0.502, 0.001);
  EXPECT_GE(limiter.available(ready + microseconds(1)), 1999u);
}

TEST(RateLimiter, WhatIsGivenBackMayPass) {
  RateLimiter limiter(Rate{10e6});
  const Instant start{std::chrono::seconds(5)};
  const std::size_t all = limiter.available(start);
  limiter.consume(start, all);
  EXPECT_EQ(limiter.available(start), 0u);
  limiter.give_back(start, all - 1000);
  EXPECT_EQ(limiter.available(start), all - 1000);
  // Long after the window has forgotten it the average alone counts.
  limiter.consume(start, all - 1000);
  const Instant later = start + std::chrono::seconds(10);
  EXPECT_EQ(limiter.available(later), all);
  limiter.give_back(start, 5000);
  EXPECT_EQ(limiter.available(later), all);
}

TEST(RateLimiter, ReadyAtWaitsForTheWindowToo) {
  RateLimiter limiter(Rate::bits(1e9));
  const Instant start{std::chrono::seconds(1)};
  // After an idle time the bucket is full, and soon the window is, too, long before the bucket is empty again.
  Instant now = start;
  int turns = 0;
  for (; now - start < milliseconds(9); ++turns) {
    limiter.consume(now, limiter.available(now));
    now = limiter.ready_at(now, limiter.quantum_bytes());
  }
  EXPECT_LT(turns, 10);
  EXPECT_GE(limiter.available(now + microseconds(1)), limiter.quantum_bytes() - 1);
}

}  // namespace
}  // namespace weightcast
