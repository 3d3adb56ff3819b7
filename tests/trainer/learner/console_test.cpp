#include "trainer/learner/console.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

// As under a service manager, or with 2> log.
TEST(Console, PrintsALinePerStepWhereThereIsNoTerminal) {
  testing::internal::CaptureStderr();
  {
    Console console;
    console.show("step 1/3");
    console.print("a warning");
    console.show("step 2/3");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "step 1/3\na warning\nstep 2/3\n");
}

}  // namespace
}  // namespace weightcast
