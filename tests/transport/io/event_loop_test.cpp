#include "transport/io/event_loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace weightcast {
namespace {

using std::chrono::milliseconds;

TEST(EventLoop, RunEndsWhenNothingIsLeftToWaitFor) {
  EventLoop loop;
  loop.run();
}

TEST(EventLoop, RunUntilReturnsAtItsDeadline) {
  EventLoop loop;
  const Instant start = loop.now();
  loop.run_until(start + milliseconds(5));
  EXPECT_GE(loop.now(), start + milliseconds(5));
}

TEST(EventLoop, PostedTasksRunOnTheLoopInTheirOrder) {
  EventLoop loop;
  constexpr int kTasks = 1000;
  std::vector<int> seen;
  std::thread::id ran_on;
  std::thread poster([&] {
    for (int i = 0; i < kTasks; ++i) {
      loop.post([&, i] {
        seen.push_back(i);
        ran_on = std::this_thread::get_id();
      });
    }
  });
  while (seen.size() < kTasks) loop.run_until(loop.now() + milliseconds(100));
  poster.join();
  for (int i = 0; i < kTasks; ++i) ASSERT_EQ(seen[std::size_t(i)], i);
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(EventLoop, OffloadedWorkRunsElsewhereAndIsDoneHere) {
  EventLoop loop;
  std::thread::id worked_on, done_on;
  loop.offload([&] { worked_on = std::this_thread::get_id(); }, [&] { done_on = std::this_thread::get_id(); });
  loop.run();
  EXPECT_NE(worked_on, std::this_thread::get_id());
  EXPECT_EQ(done_on, std::this_thread::get_id());
}

TEST(EventLoop, DestructionWaitsForOffloadedWork) {
  bool done = false;
  {
    EventLoop loop;
    loop.offload([] { std::this_thread::sleep_for(milliseconds(20)); }, [&] { done = true; });
  }
  EXPECT_TRUE(done);
}

TEST(EventLoop, TellsOfSignals) {
  EventLoop loop;
  int seen = 0;
  loop.on_terminate([&](int signal) {
    seen = signal;
    loop.stop();
  });
  ::raise(SIGTERM);
  for (int i = 0; i < 100 && seen == 0; ++i) loop.run_until(loop.now() + milliseconds(100));
  EXPECT_EQ(seen, SIGTERM);
}

TEST(EventLoopDeathTest, NamesHandlesThatAreLeftOpen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto leak = [] {
    auto loop = std::make_unique<EventLoop>();
    new Timer(*loop, [] {});  // never destroyed
    loop.reset();
  };
  EXPECT_DEATH(leak(), "open handles: poll");
}

TEST(Timer, FiresInTheOrderOfDeadlinesNeverEarly) {
  EventLoop loop;
  Instant start;
  std::string order;
  const auto record = [&](char name, Duration after) {
    EXPECT_GE(loop.now(), start + after);
    order += name;
  };
  Timer b(loop, [&] { record('b', milliseconds(6)); });
  Timer a(loop, [&] { record('a', milliseconds(2)); });
  Timer c(loop, [&] { record('c', milliseconds(12)); });
  // Once more where the machine stood still meanwhile: what is armed late is due in the order of the calls.
  do {
    start = loop.now();
    c.arm(start + milliseconds(12));
    a.arm(start + milliseconds(2));
    b.arm(start + milliseconds(6));
  } while (loop.now() >= start + milliseconds(2));
  loop.run();
  EXPECT_EQ(order, "abc");
}

TEST(Timer, APastDeadlineIsDueAtOnceButNotInsideTheCall) {
  EventLoop loop;
  bool fired = false;
  Timer timer(loop, [&] { fired = true; });
  timer.arm(Instant{});
  EXPECT_FALSE(fired);
  EXPECT_TRUE(timer.armed());
  loop.run();
  EXPECT_TRUE(fired);
  EXPECT_FALSE(timer.armed());
}

TEST(Timer, ArmingAgainReplacesAndDisarmingCancels) {
  EventLoop loop;
  int fired = 0;
  Timer replaced(loop, [&] { ++fired; });
  replaced.arm(loop.now() + std::chrono::hours(1));
  replaced.arm(loop.now() + milliseconds(1));
  Timer disarmed(loop, [&] { FAIL(); });
  disarmed.arm(loop.now());
  disarmed.disarm();
  loop.run();
  EXPECT_EQ(fired, 1);
}

TEST(Timer, MayBeDestroyedByItsOwnAction) {
  EventLoop loop;
  std::unique_ptr<Timer> timer;
  timer = std::make_unique<Timer>(loop, [&] { timer.reset(); });
  timer->arm(loop.now());
  loop.run();
  EXPECT_EQ(timer, nullptr);
}

TEST(Deferred, ManySchedulesBecomeOneActionAfterTheCall) {
  EventLoop loop;
  int ran = 0;
  Deferred deferred(loop, [&] { ++ran; });
  deferred.schedule();
  deferred.schedule();
  EXPECT_EQ(ran, 0);
  loop.run();
  EXPECT_EQ(ran, 1);
}

TEST(Deferred, MayScheduleItselfAndDestroyItselfAndOthers) {
  EventLoop loop;
  int ran = 0;
  std::unique_ptr<Deferred> second;
  std::unique_ptr<Deferred> first;
  first = std::make_unique<Deferred>(loop, [&] {
    if (++ran < 3) return first->schedule();
    second.reset();
    first.reset();
  });
  second = std::make_unique<Deferred>(loop, [&] { second->schedule(); });
  first->schedule();
  second->schedule();
  loop.run();
  EXPECT_EQ(ran, 3);
}

}  // namespace
}  // namespace weightcast
