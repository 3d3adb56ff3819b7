#include "trainer/tasks/reward_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

namespace weightcast {
namespace {

using namespace std::chrono_literals;

/// Jobs that wait until a test lets them go.
struct Gate {
  std::promise<void> open;
  std::shared_future<void> is_open = open.get_future().share();
  RewardPool::Job job() {
    return [gate = is_open] {
      gate.wait();
      return Status();
    };
  }
};

TEST(RewardPool, GivesOutcomesInTheOrderOfJobs) {
  RewardPool pool({.threads_max = 3});
  std::vector<RewardPool::Job> jobs;
  for (int i = 0; i < 50; ++i) {
    jobs.emplace_back([i]() -> Status {
      if (i % 2 == 0) return {};
      return fail(Errc::kInvalidArgument, Op::kVerify, std::to_string(i));
    });
  }
  const auto outcomes = pool.run_all(std::move(jobs));
  ASSERT_EQ(outcomes.size(), 50u);
  for (int i = 0; i < 50; ++i) {
    const Status& status = outcomes[static_cast<std::size_t>(i)];
    EXPECT_EQ(status.has_value(), i % 2 == 0);
    if (!status.has_value()) {
      EXPECT_EQ(status.error().detail, std::to_string(i));
    }
  }
  EXPECT_EQ(pool.outstanding(), 0u);
}

TEST(RewardPool, GivesUpWhatHangsAndGoesOn) {
  // Long enough that a busy host gets the two others done in it.
  RewardPool pool({.threads_max = 1, .time_max = 1s});
  Gate gate;
  const auto outcomes = pool.run_all({gate.job(), [] { return Status(); }, [] { return Status(); }});
  ASSERT_FALSE(outcomes[0].has_value());
  EXPECT_EQ(outcomes[0].error().code, Errc::kTimedOut);
  EXPECT_TRUE(outcomes[1].has_value()) << "another thread took the stuck one's place";
  EXPECT_TRUE(outcomes[2].has_value());
  EXPECT_EQ(pool.timed_out(), 1u);
  gate.open.set_value();
}

TEST(RewardPool, RunsNoMoreAtATimeThanItHasThreads) {
  RewardPool pool({.threads_max = 2});
  std::atomic<int> now = 0, most = 0;
  std::vector<RewardPool::Job> jobs(20, [&] {
    const int running = ++now;
    for (int seen = most; seen < running && !most.compare_exchange_weak(seen, running);) {
    }
    std::this_thread::sleep_for(1ms);
    --now;
    return Status();
  });
  for (const Status& status : pool.run_all(std::move(jobs))) EXPECT_TRUE(status.has_value());
  EXPECT_LE(most, 2);
}

TEST(RewardPool, RefusesWhenTooManyHang) {
  RewardPool pool({.threads_max = 1, .time_max = 5ms, .hanging_max = 2});
  Gate gate;
  std::vector<RewardPool::Job> jobs(5, gate.job());
  const auto outcomes = pool.run_all(std::move(jobs));
  // Two threads are stuck, and one more that was the last: the rest is refused at once.
  std::size_t timed_out = 0, refused = 0;
  for (const Status& status : outcomes) {
    ASSERT_FALSE(status.has_value());
    ++(status.error().code == Errc::kTimedOut ? timed_out : refused);
    if (status.error().code != Errc::kTimedOut) {
      EXPECT_EQ(status.error().code, Errc::kBusy);
    }
  }
  EXPECT_EQ(timed_out, 3u);
  EXPECT_EQ(refused, 2u);
  // Threads that come back are used again.
  gate.open.set_value();
  Status last = fail(Errc::kBusy, Op::kVerify, "");
  for (int i = 0; i < 1000 && !last.has_value(); ++i) {
    std::this_thread::sleep_for(5ms);
    last = pool.run_all({[] { return Status(); }})[0];
  }
  EXPECT_TRUE(last.has_value());
}

TEST(RewardPool, TurnsAnExceptionIntoAnError) {
  RewardPool pool({});
  const auto outcomes = pool.run_all({[]() -> Status { throw std::runtime_error("no such rule"); }});
  EXPECT_NE(outcomes[0].error().detail.find("no such rule"), std::string::npos);
}

TEST(RewardPool, TakesOutcomesAsTheyCome) {
  RewardPool pool({.threads_max = 2});
  Gate gate;
  const std::uint64_t slow = pool.submit(gate.job()), fast = pool.submit([] { return Status(); });
  EXPECT_EQ(pool.take(10s)->ticket, fast);
  EXPECT_FALSE(pool.take(1ms).has_value());
  EXPECT_EQ(pool.outstanding(), 1u);
  gate.open.set_value();
  EXPECT_EQ(pool.take(10s)->ticket, slow);
  EXPECT_FALSE(pool.take(10s).has_value()) << "nothing is outstanding";
}

TEST(RewardPool, CanEndWhileJobsHang) {
  Gate gate;
  {
    RewardPool pool({.threads_max = 1});
    pool.submit(gate.job());
    pool.submit(gate.job());
  }
  gate.open.set_value();
}

}  // namespace
}  // namespace weightcast
