#include "transport/io/jobs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "transport/io/uv_loop.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;

TEST(Jobs, RunAsOffloadedWorkDoes) {
  UvLoop loop;
  Jobs jobs(loop);
  bool worked = false, done = false;
  jobs.run([&] { worked = !jobs.cancelled(); }, [&] { done = worked; });
  loop.run();
  EXPECT_TRUE(done);
}

TEST(Jobs, CancelledOnesEndSoonAndStillCallBack) {
  UvLoop loop;
  Jobs jobs(loop);
  bool done = false;
  jobs.run(
      [&] {
        while (!jobs.cancelled()) std::this_thread::yield();
      },
      [&] { done = true; });
  jobs.cancel();
  loop.run();
  EXPECT_TRUE(done);
}

TEST(Jobs, AfterStopNothingRunsAndNothingCallsBack) {
  UvLoop loop;
  auto jobs = std::make_unique<Jobs>(loop);
  std::atomic<int> running = 0;
  for (int i = 0; i < 8; ++i) {  // more than there are threads
    jobs->run(
        [&running, raw = jobs.get()] {
          ++running;
          raw->post([] { ADD_FAILURE() << "posted by a job whose owner is gone"; });
          while (!raw->cancelled()) std::this_thread::yield();
          std::this_thread::sleep_for(milliseconds(5));
          --running;
        },
        [] { ADD_FAILURE() << "called back after stop()"; });
  }
  while (running == 0) std::this_thread::yield();
  jobs->stop();
  EXPECT_EQ(running, 0);
  jobs.reset();
  loop.run();
}

}  // namespace
}  // namespace weightcast
