#include "transport/io/uv_loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/files/unique_fd.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;

TEST(EventLoop, RunEndsWhenNothingIsLeftToWaitFor) {
  UvLoop loop;
  loop.run();
}

TEST(EventLoop, RunUntilReturnsAtItsDeadline) {
  UvLoop loop;
  const Instant start = loop.now();
  loop.run_until(start + milliseconds(5));
  EXPECT_GE(loop.now(), start + milliseconds(5));
}

TEST(EventLoop, PostedTasksRunOnTheLoopInTheirOrder) {
  UvLoop loop;
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
  UvLoop loop;
  std::thread::id worked_on, done_on;
  loop.offload([&] { worked_on = std::this_thread::get_id(); }, [&] { done_on = std::this_thread::get_id(); });
  loop.run();
  EXPECT_NE(worked_on, std::this_thread::get_id());
  EXPECT_EQ(done_on, std::this_thread::get_id());
}

TEST(EventLoop, WaitingForAJobLeavesItsEndToTheLoop) {
  UvLoop loop;
  bool worked = false, done = false;
  const auto job = loop.offload(
      [&] {
        std::this_thread::sleep_for(milliseconds(20));
        worked = true;
      },
      [&] { done = true; });
  job->wait();
  EXPECT_TRUE(worked);
  EXPECT_FALSE(done);
  loop.run();
  EXPECT_TRUE(done);
  job->wait();
}

TEST(EventLoop, DestructionWaitsForOffloadedWork) {
  bool done = false;
  {
    UvLoop loop;
    loop.offload([] { std::this_thread::sleep_for(milliseconds(20)); }, [&] { done = true; });
  }
  EXPECT_TRUE(done);
}

TEST(EventLoop, TellsOfSignals) {
  UvLoop loop;
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
    auto loop = std::make_unique<UvLoop>();
    new FdWatch(*loop, ::eventfd(0, 0), [](FdWatch::Ready) {});  // never destroyed
    loop.reset();
  };
  EXPECT_DEATH(leak(), "open handles: poll");
  const auto leak_timer = [] {
    auto loop = std::make_unique<UvLoop>();
    new Timer(*loop, [] {});  // never destroyed
    loop.reset();
  };
  EXPECT_DEATH(leak_timer(), "open handles: 1 timers or deferred actions");
}

TEST(Timer, FiresInTheOrderOfDeadlinesNeverEarly) {
  UvLoop loop;
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
  UvLoop loop;
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
  UvLoop loop;
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
  UvLoop loop;
  std::unique_ptr<Timer> timer;
  timer = std::make_unique<Timer>(loop, [&] { timer.reset(); });
  timer->arm(loop.now());
  loop.run();
  EXPECT_EQ(timer, nullptr);
}

TEST(Timer, CanBeCalledOffByOneThatIsDueWithIt) {
  UvLoop loop;
  Instant due = loop.now();
  std::unique_ptr<Timer> destroyed = std::make_unique<Timer>(loop, [] { FAIL(); });
  Timer disarmed(loop, [] { FAIL(); });
  int moved_fired = 0;
  Timer moved(loop, [&] {
    ++moved_fired;
    EXPECT_GE(loop.now(), due + milliseconds(3));
  });
  Timer first(loop, [&] {
    destroyed.reset();
    EXPECT_TRUE(disarmed.armed());
    disarmed.disarm();
    moved.arm(due + milliseconds(3));
  });
  first.arm(due);
  destroyed->arm(due + std::chrono::nanoseconds(1));
  disarmed.arm(due + std::chrono::nanoseconds(2));
  moved.arm(due + std::chrono::nanoseconds(3));
  loop.run();
  EXPECT_EQ(moved_fired, 1);
}

TEST(Timer, ManyFireInTheOrderOfTheirDeadlinesHoweverTheyWereArmed) {
  UvLoop loop;
  std::mt19937 random(1);
  constexpr std::size_t kTimers = 300;
  std::vector<std::unique_ptr<Timer>> timers;
  std::vector<std::optional<Instant>> expected(kTimers);
  std::vector<Instant> fired;
  const Instant start = loop.now() + milliseconds(50);
  for (std::size_t i = 0; i < kTimers; ++i) {
    timers.push_back(std::make_unique<Timer>(loop, [&, i] { fired.push_back(*std::exchange(expected[i], {})); }));
  }
  for (int i = 0; i < 5000; ++i) {
    const std::size_t which = random() % kTimers;
    if (random() % 3 == 0) {
      timers[which]->disarm();
      expected[which].reset();
    } else {
      expected[which] = start + std::chrono::microseconds(random() % 1000);
      timers[which]->arm(*expected[which]);
    }
  }
  const auto armed =
      static_cast<std::size_t>(std::ranges::count_if(expected, [](const auto& due) { return due.has_value(); }));
  loop.run();
  EXPECT_EQ(fired.size(), armed);
  EXPECT_TRUE(std::ranges::is_sorted(fired));
}

TEST(Timer, TakesNoDescriptorOfItsOwn) {
  UvLoop loop;
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator{});
  };
  const auto before = descriptors();
  std::vector<std::unique_ptr<Timer>> timers;
  for (int i = 0; i < 1000; ++i) {
    timers.push_back(std::make_unique<Timer>(loop, [] {}));
    timers.back()->arm(loop.now() + std::chrono::hours(1));
  }
  EXPECT_EQ(descriptors(), before);
}

TEST(Timer, DeadlinesThatMoveBackDoNotFireEarly) {
  UvLoop loop;
  const Instant start = loop.now();
  int fired = 0;
  Timer timer(loop, [&] {
    ++fired;
    EXPECT_GE(loop.now(), start + milliseconds(8));
  });
  for (int i = 1; i <= 8; ++i) timer.arm(start + milliseconds(i));
  loop.run();
  EXPECT_EQ(fired, 1);
}

TEST(Deferred, ManySchedulesBecomeOneActionAfterTheCall) {
  UvLoop loop;
  int ran = 0;
  Deferred deferred(loop, [&] { ++ran; });
  deferred.schedule();
  deferred.schedule();
  EXPECT_EQ(ran, 0);
  loop.run();
  EXPECT_EQ(ran, 1);
}

TEST(Deferred, MayScheduleItselfAndDestroyItselfAndOthers) {
  UvLoop loop;
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

TEST(FdWatch, WhatCannotBeWatchedIsToldAsFailed) {
  UvLoop loop;
  const UniqueFd file(::memfd_create("file", MFD_CLOEXEC));  // always ready, so the kernel refuses to watch it
  int failed = 0;
  FdWatch watch(loop, file.get(), [&](FdWatch::Ready ready) { failed += ready.failed ? 1 : 0; });
  loop.run_until(loop.now() + std::chrono::milliseconds(1));
  EXPECT_EQ(failed, 0) << "nobody watches yet";
  watch.watch(true, false);
  EXPECT_EQ(failed, 0) << "not from inside the call";
  loop.run_until(loop.now() + std::chrono::milliseconds(1));
  EXPECT_EQ(failed, 1);
}

}  // namespace
}  // namespace weightcast
