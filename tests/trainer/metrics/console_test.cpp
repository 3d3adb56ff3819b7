#include "trainer/metrics/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/settings/log_writer.h"

namespace weightcast {
namespace {

/// What a captured stderr has, all of it: the log is written by a thread of its own.
std::string captured_log() {
  flush_log(std::chrono::seconds(60));
  return testing::internal::GetCapturedStderr();
}

// As under a service manager, or with 2> log.
TEST(Console, PrintsALinePerStepWhereThereIsNoTerminal) {
  testing::internal::CaptureStderr();
  {
    Console console;
    console.show("step 1/3");
    console.warn("a warning");
    console.show("step 2/3");
  }
  EXPECT_THAT(captured_log(),
              testing::MatchesRegex("[^ ]+ info step 1/3\n[^ ]+ warning a warning\n[^ ]+ info step 2/3\n"));
}

TEST(Console, PrintsAnObjectALineAsJson) {
  testing::internal::CaptureStderr();
  {
    Console console({LogFormat::kJson, "learner"});
    console.show("step 1/3");
    console.warn("refused: \"x\"");
  }
  EXPECT_THAT(
      captured_log(),
      testing::MatchesRegex(
          "\\{\"time\":\"[^\"]+\",\"level\":\"info\",\"component\":\"learner\",\"message\":\"step 1/3\"\\}\n"
          "\\{\"time\":\"[^\"]+\",\"level\":\"warning\",\"component\":\"learner\",\"message\":\"refused: .*\"\\}\n"));
}

}  // namespace
}  // namespace weightcast
