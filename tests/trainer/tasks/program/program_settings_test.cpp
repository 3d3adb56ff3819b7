#include "trainer/tasks/program/program_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace weightcast {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(TaskProgramSettings, AreTheWordsOfTheProgram) {
  TaskProgramSettings settings;
  EXPECT_THAT(program_words(settings).error().message(), HasSubstr("task_program.command is empty"));
  settings.command = "python3";
  settings.arguments = {"task.py", "--digits", "2,3"};
  EXPECT_THAT(program_words(settings).value(), ElementsAre("python3", "task.py", "--digits", "2,3"));
}

TEST(TaskProgramSettings, PassNoMoreOfTheEnvironmentThanIsNamed) {
  ::setenv("WEIGHTCAST_TEST_KEY", "secret", 1);
  TaskProgramSettings settings;
  settings.environment = {"HOME=/nowhere", "EMPTY=", "TWO=a=b"};
  const std::vector<std::string> environment = program_environment(settings).value();
  EXPECT_THAT(environment, Contains(StartsWith("PATH=")));
  EXPECT_THAT(environment, Contains("HOME=/nowhere"));
  EXPECT_THAT(environment, Contains("EMPTY="));
  EXPECT_THAT(environment, Contains("TWO=a=b"));
  EXPECT_THAT(environment, Contains(StartsWith("HOME=")).Times(1));
  EXPECT_THAT(environment, testing::Not(Contains(StartsWith("WEIGHTCAST_TEST_KEY"))));
  settings.environment = {"PATH"};
  EXPECT_THAT(program_environment(settings).error().message(), HasSubstr("'PATH' is no NAME=VALUE"));
}

TEST(TaskProgramSettings, RefuseASandboxThatNobodyKnows) {
  TaskProgramSettings settings;
  std::vector<SettingField> fields;
  add_task_program_fields(fields, settings);
  EXPECT_THAT(apply_setting(fields, {"task_program.sandbox", "docker"}).error().message(),
              HasSubstr("none, auto, bwrap"));
  EXPECT_TRUE(apply_setting(fields, {"task_program.processes", "3"}).has_value());
  EXPECT_EQ(settings.processes, 3u);
  EXPECT_FALSE(apply_setting(fields, {"task_program.processes", "0"}).has_value());
}

}  // namespace
}  // namespace weightcast
