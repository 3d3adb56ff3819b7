#include "transport/io/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/settings/log_writer.h"

namespace weightcast {
namespace {

/// What a captured stderr has, all of it: the log is written by a thread of its own.
std::string captured_log() {
  flush_log(std::chrono::seconds(60));
  return testing::internal::GetCapturedStderr();
}

struct Log : testing::Test {
  void SetUp() override { set_up_log("warning", {LogFormat::kText, "origin"}); }
};

TEST_F(Log, WritesOneLineEachFromItsLevelOn) {
  testing::internal::CaptureStderr();
  log_info("version {} is here", 1);
  log_warning("version {}: {}", 2, "late");
  log_error("{}", "braces {} of others stay");
  const std::string text = captured_log();
  EXPECT_THAT(text, testing::ContainsRegex(
                        "^[-+0-9T:.]+ warning version 2: late\n[-+0-9T:.]+ error braces \\{\\} of others stay\n$"));
}

TEST_F(Log, WhatPeersSayForgesNoLineAndDrivesNoTerminal) {
  testing::internal::CaptureStderr();
  log_warning("refusing worker '{}'", "a\n2026-01-01T00:00:00.000 info all is well\x1b[2J\x07 gpu-\xff\u009b0m");
  log_error("{}", std::string(100'000, 'x'));
  const std::string text = captured_log();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_THAT(text,
              testing::HasSubstr("a\\n2026-01-01T00:00:00.000 info all is well\\x1b[2J\\x07 gpu-\\xff\\xc2\\x9b0m"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 5000u);
}

TEST_F(Log, OfLevelOffWritesNothing) {
  set_up_log("off", {LogFormat::kText, "origin"});
  testing::internal::CaptureStderr();
  log_error("{}", "lost");
  EXPECT_EQ(captured_log(), "");
}

// What is charged to a peer is what its line takes on the disk.
TEST_F(Log, KnowsWhatALineTakes) {
  const std::string text = std::string(300, '\x01') + "\"quoted\"" + std::string(300, '\xff');
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    set_up_log("info", {format, "origin"});
    testing::internal::CaptureStderr();
    log_warning("{}", text);
    EXPECT_EQ(log_line_bytes(LogLevel::kWarning, text), captured_log().size());
  }
}

TEST_F(Log, IsAnObjectALineAsJson) {
  set_up_log("info", {LogFormat::kJson, "worker"});
  testing::internal::CaptureStderr();
  log_info("version {}", 1);
  log_warning("'{}'", "a\n\"b\"");
  EXPECT_THAT(captured_log(),
              testing::MatchesRegex(
                  "\\{\"time\":\"[^\"]+\",\"level\":\"info\",\"component\":\"worker\",\"message\":\"version 1\"\\}\n"
                  "\\{\"time\":\"[^\"]+\",\"level\":\"warning\",\"component\":\"worker\",\"message\":\".*\"\\}\n"));
}

}  // namespace
}  // namespace weightcast
