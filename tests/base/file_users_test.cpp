#include "base/files/file_users.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

namespace weightcast {
namespace {

TEST(FileUsers, NamesWhoHasAFileOpen) {
  std::string path = (std::filesystem::temp_directory_path() / "weightcast-users-XXXXXX").string();
  const int fd = ::mkstemp(path.data());
  ASSERT_GE(fd, 0);
  EXPECT_THAT(users_in_proc({path}), testing::HasSubstr("process " + std::to_string(::getpid())));
  ::close(fd);
  EXPECT_EQ(users_in_proc({path}), "");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace weightcast
