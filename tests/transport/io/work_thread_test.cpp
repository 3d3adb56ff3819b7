#include "transport/io/work_thread.h"

#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <string>

#include "tests/transport/io/io_fixture.h"

namespace weightcast {
namespace {

TEST(OffloadThreads, WorksInOrderAndTellsTheLoop) {
  Net net;
  const auto loop_thread = std::this_thread::get_id();
  std::string worked, told;
  OffloadThreads thread(net.loop);
  for (char name = 'a'; name <= 'z'; ++name) {
    thread.run(
        [&, name] {
          EXPECT_NE(std::this_thread::get_id(), loop_thread);
          worked += name;
        },
        [&, name] {
          EXPECT_EQ(std::this_thread::get_id(), loop_thread);
          told += name;
        });
  }
  ASSERT_TRUE(net.run_until([&] { return told.size() == 26; }));
  EXPECT_EQ(worked, "abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(told, worked);
}

TEST(OffloadThreads, GoesAwayAfterTheWorkThatRunsAndDropsTheRest) {
  Net net;
  std::latch running(1);
  bool ended = false;
  auto thread = std::make_unique<OffloadThreads>(net.loop);
  thread->run(
      [&] {
        running.count_down();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ended = true;
      },
      [] {});
  running.wait();
  const auto held = std::make_shared<int>();
  thread->run([held] { ADD_FAILURE() << "dropped work ran"; }, [] { ADD_FAILURE() << "and was told"; });
  thread.reset();
  EXPECT_TRUE(ended);
  EXPECT_EQ(held.use_count(), 1);
  net.run_for(std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace weightcast
