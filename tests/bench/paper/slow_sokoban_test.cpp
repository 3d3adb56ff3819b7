// The program that is the task of flash-fig11, as a learner or a worker starts it.
#include <gtest/gtest.h>

#include "base/steady_clock.h"
#include "trainer/tasks/program/open_task.h"

namespace weightcast::bench {
namespace {

Result<std::unique_ptr<Task>> open(const TaskOptions& options) {
  TaskProgramSettings settings;
  settings.command = WEIGHTCAST_TOOLS "/weightcast-bench-sokoban";
  settings.call_time_max = 60;
  return open_task(kProgramTask, options, "", settings, [](const std::string&) {});
}

TEST(SlowSokoban, PlaysAsTheTaskDoesAndTakesItsTime) {
  TaskOptions options{{"rows", "5"}, {"columns", "5"}, {"boxes", "1"}};
  const auto fast = make_task("sokoban", options).value();
  options.insert({{"delay_median_s", "0.05"}, {"delay_sigma", "0"}});
  const auto slow = open(options).value();
  EXPECT_EQ(slow->name(), "program:slow_sokoban@1");
  for (const std::uint64_t seed : {3, 4}) {
    const auto theirs = fast->make_environment(), ours = slow->make_environment();
    EXPECT_EQ(ours->reset(seed)->messages, theirs->reset(seed)->messages);
    for (const char* action : {"up left", "right", "nothing", "down down"}) {
      const StepResult expected = theirs->step(action).value();
      const Instant begin = steady_now();
      const StepResult result = ours->step(action).value();
      EXPECT_GE(to_seconds(steady_now() - begin), 0.05);
      EXPECT_EQ(result.observation, expected.observation);
      EXPECT_EQ(result.reward, expected.reward);
      EXPECT_EQ(result.done, expected.done);
      if (result.done) break;
    }
  }
}

TEST(SlowSokoban, SaysWhatIsWrongWithAnOption) {
  const auto asked = [](const TaskOptions& options) { return open(options).error().message(); };
  EXPECT_NE(asked({{"delay_sigma", "x"}}).find("delay_sigma = 'x' is no number from 0 to 60"), std::string::npos);
  EXPECT_NE(asked({{"boxs", "1"}}).find("boxes"), std::string::npos) << asked({{"boxs", "1"}});
}

}  // namespace
}  // namespace weightcast::bench
