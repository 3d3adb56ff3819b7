#include "transport/node/role_file.h"

#include <gmock/gmock.h>

#include "base/files/posix_file_system.h"
#include "tests/patch/temp_dir.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

struct RoleFile : testing::Test {
  PosixFileSystem files;
  TempDir state;
};

TEST_F(RoleFile, KeepsTheOtherRoleOut) {
  EXPECT_TRUE(check_role(files, state.path(), Role::kOrigin).has_value()) << "nobody's yet";
  keep_role(files, state.path(), Role::kWorker);
  EXPECT_TRUE(check_role(files, state.path(), Role::kWorker).has_value());
  EXPECT_THAT(check_role(files, state.path(), Role::kOrigin),
              FailsWith(Errc::kNotAllowed, "it is the directory of a worker, and this node is to be an origin",
                        "weightcast remove --state"));
}

TEST_F(RoleFile, IsToldOfAnEarlierReleasesDirectoryByWhatLiesThere) {
  state.write("accepted", "");
  EXPECT_FALSE(check_role(files, state.path(), Role::kOrigin).has_value());
  EXPECT_TRUE(check_role(files, state.path(), Role::kWorker).has_value());
  const TempDir origin;
  origin.write("peers.json", "{}");
  EXPECT_FALSE(check_role(files, origin.path(), Role::kWorker).has_value());
  EXPECT_TRUE(check_role(files, origin.path(), Role::kOrigin).has_value());
}

TEST_F(RoleFile, OneThatIsDamagedIsWrittenAnew) {
  state.write("role", std::string(1000, 'x'));
  EXPECT_TRUE(check_role(files, state.path(), Role::kOrigin).has_value());
  keep_role(files, state.path(), Role::kOrigin);
  EXPECT_FALSE(check_role(files, state.path(), Role::kWorker).has_value());
}

}  // namespace
}  // namespace weightcast
