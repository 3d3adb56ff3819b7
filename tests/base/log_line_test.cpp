#include "base/log_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

namespace weightcast {
namespace {

struct LogLine : testing::Test {
  /// The zone of this process from now on, as POSIX writes it: "CET-1" is an hour ahead.
  static void live_in(const char* zone) {
    ::setenv("TZ", zone, 1);
    ::tzset();
  }
  ~LogLine() override {
    ::unsetenv("TZ");
    ::tzset();
  }
  const WallTime time{std::chrono::milliseconds(1'795'000'000'042)};  // 2026-11-18T11:06:40.042Z
};

TEST_F(LogLine, NamesTheZoneOfItsTime) {
  live_in("UTC0");
  EXPECT_EQ(iso_time(time), "2026-11-18T11:06:40.042+00:00");
  live_in("XXX-5:45");
  EXPECT_EQ(iso_time(time), "2026-11-18T16:51:40.042+05:45");
  live_in("XXX3:30");
  EXPECT_EQ(iso_time(time), "2026-11-18T07:36:40.042-03:30");
  EXPECT_EQ(iso_time(WallTime(std::chrono::milliseconds(-1))), "1969-12-31T20:29:59.999-03:30");
}

TEST_F(LogLine, AsTextHasTimeLevelAndMessage) {
  live_in("UTC0");
  EXPECT_EQ(log_line_of({LogFormat::kText, "origin"}, time, "warning", "lost worker a"),
            "2026-11-18T11:06:40.042+00:00 warning lost worker a");
}

TEST_F(LogLine, AsJsonIsOneObjectWhateverThePeersSay) {
  live_in("UTC0");
  EXPECT_EQ(
      log_line_of({LogFormat::kJson, "origin"}, time, "info", "it is \"there\""),
      R"({"time":"2026-11-18T11:06:40.042+00:00","level":"info","component":"origin","message":"it is \"there\""})");
  const std::string line =
      log_line_of({LogFormat::kJson, "worker"}, time, "error", "a\n{\xff\x1b[2J\\" + std::string(9000, 'x'));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_LT(line.size(), 5000u);
  const auto read = nlohmann::json::parse(line);
  EXPECT_THAT(read.at("message").get<std::string>(), testing::StartsWith("a\\n{\\xff\\x1b[2J\\x"));
  EXPECT_EQ(read.at("component"), "worker");
}

}  // namespace
}  // namespace weightcast
