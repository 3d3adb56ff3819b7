#include "tools/run_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

namespace weightcast {
namespace {

TEST(RunCommands, EndsWithOneLineWhereALibraryThrows) {
  CLI::App app("", "program");
  std::string name = "program";
  char* arguments[] = {name.data(), nullptr};
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_commands(
                app, []() -> Status { throw std::runtime_error("no bytes\nof many"); }, 1, arguments),
            1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "program: cannot configure: a library says: no bytes\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_commands(
                app, []() -> Status { throw std::bad_alloc(); }, 1, arguments),
            1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "program: cannot configure: a library says: std::bad_alloc; it takes more memory than there is\n");
  EXPECT_EQ(run_commands(
                app, []() -> Status { return {}; }, 1, arguments),
            0);
}

}  // namespace
}  // namespace weightcast
