#include "transport/io/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightcast {
namespace {

TEST(Log, WritesOneLineEachFromItsLevelOn) {
  testing::internal::CaptureStderr();
  set_up_log("warning");
  log_info("version {} is here", 1);
  log_warning("version {}: {}", 2, "late");
  log_error("{}", "braces {} of others stay");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::ContainsRegex(
                        "^[-0-9T:.]+ warning version 2: late\n[-0-9T:.]+ error braces \\{\\} of others stay\n$"));
}

}  // namespace
}  // namespace weightcast
