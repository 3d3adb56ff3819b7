#include "transport/io/net/pacer.h"
#include "transport/io/uv_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace weightcast {
namespace {

using std::chrono::milliseconds;

// Moves whatever it may, and notes when.
class Greedy final : public Pacer::Client {
 public:
  struct Passed {
    Instant at;
    std::size_t bytes;
  };

  Greedy(EventLoop& loop, Pacer& pacer, std::vector<Passed>& log) : loop_(loop), pacer_(pacer), log_(log) {
    pacer_.request(*this);
  }
  ~Greedy() override { pacer_.forget(*this); }

  Moved move_bytes(std::size_t bytes_max) override {
    log_.push_back({loop_.now(), bytes_max});
    total_bytes_ += bytes_max;
    return {bytes_max, true};
  }

  [[nodiscard]] std::size_t total_bytes() const { return total_bytes_; }

 private:
  EventLoop& loop_;
  Pacer& pacer_;
  std::vector<Passed>& log_;
  std::size_t total_bytes_ = 0;
};

std::size_t most_in_any(Duration window, const std::vector<Greedy::Passed>& passed) {
  std::size_t bytes = 0, most = 0, first = 0;
  for (const auto& p : passed) {
    bytes += p.bytes;
    while (p.at - passed[first].at >= window) bytes -= passed[first++].bytes;
    most = std::max(most, bytes);
  }
  return most;
}

// Time that the host's scheduler took from the loop, beyond the lateness that the rate's bounds can make up for.
Duration stolen(Rate rate, const std::vector<Greedy::Passed>& passed) {
  const Duration excused = from_seconds((double(RateLimiter::kWindowSlackBytes) / 2) / rate.bytes_per_s);
  Duration sum{};
  for (std::size_t i = 1; i < passed.size(); ++i) {
    const Duration pause = passed[i].at - passed[i - 1].at;
    const Duration planned = from_seconds(double(passed[i - 1].bytes) / rate.bytes_per_s);
    sum += std::max(Duration{}, pause - planned - excused);
  }
  return sum;
}

class PacerAtRate : public testing::TestWithParam<double> {};

TEST_P(PacerAtRate, FillsTheRateEvenlyWithinItsBounds) {
  UvLoop loop;
  const Rate rate = Rate::bits(GetParam());
  Pacer pacer(loop, rate);
  std::vector<Greedy::Passed> log;
  Greedy one(loop, pacer, log), two(loop, pacer, log);
  const Instant start = loop.now();
  while (loop.now() - start < std::chrono::seconds(1)) loop.run_until(start + std::chrono::seconds(1));
  const double share = rate.bytes_per_s * to_seconds(loop.now() - start);
  const auto total = double(one.total_bytes() + two.total_bytes());
  EXPECT_GE(total, 0.97 * share - rate.bytes_per_s * to_seconds(stolen(rate, log)));
  EXPECT_LE(total, 1.03 * share);
  EXPECT_NEAR(double(one.total_bytes()), double(two.total_bytes()), 64.0 * kKiB);
  EXPECT_LE(double(most_in_any(RateLimiter::kWindow, log)),
            rate.bytes_per_s * to_seconds(RateLimiter::kWindow) + double(RateLimiter::kWindowSlackBytes));
}

INSTANTIATE_TEST_SUITE_P(Rates, PacerAtRate, testing::Values(20e6, 100e6, 300e6));

TEST(Pacer, GivesNoTurnInsideRequestEvenWithoutALimit) {
  UvLoop loop;
  Pacer pacer(loop, Rate{});
  std::vector<Greedy::Passed> log;
  Greedy client(loop, pacer, log);
  EXPECT_TRUE(log.empty());
  loop.run_until(loop.now() + milliseconds(1));
  EXPECT_FALSE(log.empty());
}

TEST(Pacer, ChargedBytesAreMadeUpFor) {
  UvLoop loop;
  const Instant start = loop.now();
  Pacer pacer(loop, Rate{10e6});
  pacer.charge(500'000);
  std::vector<Greedy::Passed> log;
  Greedy client(loop, pacer, log);
  while (log.empty()) loop.run_until(start + std::chrono::seconds(1));
  EXPECT_GE(log.front().at - start, milliseconds(30));
}

TEST(Pacer, AMemberWithManyConnectionsGetsNoMoreThanOneWithASingleOne) {
  UvLoop loop;
  Pacer pacer(loop, Rate{50e6});
  std::vector<Greedy::Passed> log;
  Greedy one(loop, pacer, log);
  const auto many = std::make_shared<Pacer::Share>();
  std::vector<std::unique_ptr<Greedy>> of_many;
  for (int i = 0; i < 64; ++i) {
    of_many.push_back(std::make_unique<Greedy>(loop, pacer, log));
    pacer.join(*of_many.back(), many);
  }
  while (one.total_bytes() < 6'000'000) loop.run_until(loop.now() + milliseconds(10));
  std::size_t bytes_of_many = 0;
  for (const auto& client : of_many) {
    EXPECT_GT(client->total_bytes(), 0u) << "its connections take turns";
    bytes_of_many += client->total_bytes();
  }
  EXPECT_NEAR(double(bytes_of_many), double(one.total_bytes()), 256.0 * kKiB);
}

// Another thread moves its bytes: the test, when it likes.
class UnderWay final : public Pacer::Client {
 public:
  explicit UnderWay(Pacer& pacer) : pacer_(pacer) { pacer_.request(*this); }
  ~UnderWay() override { pacer_.forget(*this); }

  Moved move_bytes(std::size_t bytes_max) override {
    granted_ = bytes_max;
    return {.bytes = bytes_max, .under_way = true};
  }
  void settle(std::size_t moved, bool wants_more) {
    total_ += moved;
    granted_ = 0;
    pacer_.settle(*this, moved, wants_more);
  }
  [[nodiscard]] std::size_t granted() const { return granted_; }
  [[nodiscard]] std::size_t total() const { return total_; }

 private:
  Pacer& pacer_;
  std::size_t granted_ = 0;
  std::size_t total_ = 0;
};

TEST(Pacer, BytesUnderWayThatDidNotMoveDoNotCount) {
  constexpr double kRate = 50e6;
  UvLoop loop;
  Pacer pacer(loop, Rate{kRate});
  UnderWay idle(pacer), busy(pacer);
  const Instant start = loop.now();
  while (loop.now() - start < milliseconds(300)) {
    if (idle.granted() > 0) idle.settle(0, true);
    if (busy.granted() > 0) busy.settle(busy.granted(), true);
    loop.run_until(loop.now() + milliseconds(1));
  }
  const double share = double(busy.total()) / (kRate * to_seconds(loop.now() - start));
  EXPECT_LT(share, 1.1);  // a full bucket at the start
  EXPECT_GT(share, 0.5) << "a busy host turns the loop seldom; half of it went to the other before";
}

TEST(Pacer, WhoseBytesAreUnderWayForLongKeepsItsClaim) {
  UvLoop loop;
  Pacer pacer(loop, Rate{50e6});
  UnderWay quick(pacer), slow(pacer);
  // It gets nothing more before it has settled, and then what it has missed, one turn after the other.
  for (int turn = 0; turn < 400; ++turn) {
    if (quick.granted() > 0) quick.settle(quick.granted(), true);
    if (slow.granted() > 0 && turn % 3 == 0) slow.settle(slow.granted(), true);
    loop.run_until(loop.now() + milliseconds(1));
  }
  const std::size_t missed = quick.total() - std::min(quick.total(), slow.total());
  EXPECT_GT(slow.total(), 0u);
  for (int turn = 0; turn < 2000 && quick.total() > slow.total() + 256 * kKiB; ++turn) {
    if (quick.granted() > 0) quick.settle(quick.granted(), true);
    if (slow.granted() > 0) slow.settle(slow.granted(), true);
    loop.run_until(loop.now() + milliseconds(1));
  }
  EXPECT_NEAR(double(slow.total()), double(quick.total()), 256.0 * kKiB) << "it had missed " << missed;
}

TEST(Pacer, WithoutALimitFewBytesAreUnderWayAtATime) {
  UvLoop loop;
  Pacer pacer(loop, Rate{});
  std::vector<std::unique_ptr<UnderWay>> clients;
  for (int i = 0; i < 40; ++i) clients.push_back(std::make_unique<UnderWay>(pacer));
  const auto granted = [&] { return std::ranges::count_if(clients, [](const auto& c) { return c->granted() > 0; }); };
  for (int i = 0; i < 20; ++i) loop.run_until(loop.now() + milliseconds(1));
  EXPECT_EQ(granted(), 8) << "of a MiB each";
  for (const auto& client : clients) {
    if (client->granted() > 0) client->settle(0, false);
  }
  for (int i = 0; i < 20; ++i) loop.run_until(loop.now() + milliseconds(1));
  EXPECT_EQ(granted(), 8) << "others";
}

TEST(Pacer, AShareWhoseBytesCountFourfoldGetsAFifthBesideAnother) {
  UvLoop loop;
  Pacer pacer(loop, Rate{50e6});
  std::vector<Greedy::Passed> log;
  const auto dear = std::make_shared<Pacer::Share>();
  dear->set_cost(4);
  Greedy second_copy(loop, pacer, log);
  pacer.join(second_copy, dear);
  while (second_copy.total_bytes() < 500'000) loop.run_until(loop.now() + milliseconds(10));
  const std::size_t before = second_copy.total_bytes();
  Greedy first_copy(loop, pacer, log);
  while (first_copy.total_bytes() < 4'000'000) loop.run_until(loop.now() + milliseconds(10));
  EXPECT_NEAR(double(second_copy.total_bytes() - before), double(first_copy.total_bytes()) / 4, 256.0 * kKiB);
}

TEST(Pacer, WithoutALimitAShareHasNoMoreThanItsOwnRateAndKeepsNobodyWaiting) {
  UvLoop loop;
  Pacer pacer(loop, Rate{});
  std::vector<Greedy::Passed> log;
  const auto held_back = std::make_shared<Pacer::Share>();
  held_back->set_rate_max(Rate{2e6});
  std::vector<std::unique_ptr<Greedy>> of_one;
  for (int i = 0; i < 64; ++i) {
    of_one.push_back(std::make_unique<Greedy>(loop, pacer, log));
    pacer.join(*of_one.back(), held_back);
  }
  const auto bytes = [&] {
    std::size_t sum = 0;
    for (const auto& client : of_one) sum += client->total_bytes();
    return sum;
  };
  const Instant start = loop.now();
  while (loop.now() - start < milliseconds(500)) loop.run_until(start + milliseconds(500));
  EXPECT_GT(bytes(), 500'000u);
  EXPECT_LE(double(bytes()), 2e6 * to_seconds(loop.now() - start) + 64.0 * kKiB);
  std::vector<Greedy::Passed> others;
  Greedy other(loop, pacer, others);
  loop.run_until(loop.now() + milliseconds(1));
  EXPECT_GT(other.total_bytes(), 0u) << "it waits for no timer";
}

TEST(Pacer, ARateOfAShareCountsForNothingWhereThePacerHasOne) {
  UvLoop loop;
  Pacer pacer(loop, Rate{20e6});
  std::vector<Greedy::Passed> log;
  const auto share = std::make_shared<Pacer::Share>();
  share->set_rate_max(Rate{1e3});
  Greedy one(loop, pacer, log);
  pacer.join(one, share);
  while (one.total_bytes() < 1'000'000) loop.run_until(loop.now() + milliseconds(10));
}

TEST(Pacer, AClientMayForgetItselfAndOthersDuringItsTurn) {
  struct Leaver final : Pacer::Client {
    Leaver(Pacer& p, std::unique_ptr<Greedy>& n) : pacer(p), neighbour(n) { pacer.request(*this); }
    Moved move_bytes(std::size_t) override {
      neighbour.reset();
      pacer.forget(*this);
      left = true;
      return {1, true};
    }
    Pacer& pacer;
    std::unique_ptr<Greedy>& neighbour;
    bool left = false;
  };
  UvLoop loop;
  Pacer pacer(loop, Rate{1e6});
  std::vector<Greedy::Passed> log;
  std::unique_ptr<Greedy> neighbour;
  Leaver leaver(pacer, neighbour);
  neighbour = std::make_unique<Greedy>(loop, pacer, log);
  loop.run_until(loop.now() + milliseconds(50));
  EXPECT_TRUE(leaver.left);
  EXPECT_TRUE(log.empty());
}

}  // namespace
}  // namespace weightcast
