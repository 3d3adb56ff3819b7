#include "transport/io/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace weightcast {
namespace {

struct Log : testing::Test {
  static void SetUpTestSuite() { set_up_log("warning"); }
};

TEST_F(Log, WritesOneLineEachFromItsLevelOn) {
  testing::internal::CaptureStderr();
  log_info("version {} is here", 1);
  log_warning("version {}: {}", 2, "late");
  log_error("{}", "braces {} of others stay");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::ContainsRegex(
                        "^[-0-9T:.]+ warning version 2: late\n[-0-9T:.]+ error braces \\{\\} of others stay\n$"));
}

TEST_F(Log, WhatPeersSayForgesNoLineAndDrivesNoTerminal) {
  testing::internal::CaptureStderr();
  log_warning("refusing worker '{}'", "a\n2026-01-01T00:00:00.000 info all is well\x1b[2J\x07 gpu-\xff\u009b0m");
  log_error("{}", std::string(100'000, 'x'));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_THAT(text,
              testing::HasSubstr("a\\n2026-01-01T00:00:00.000 info all is well\\x1b[2J\\x07 gpu-\\xff\\xc2\\x9b0m"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 5000u);
}

}  // namespace
}  // namespace weightcast
