#include "transport/node/private_files.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/patch/temp_dir.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

struct PrivateFiles : testing::Test {
  ~PrivateFiles() override { ::umask(before); }

  const mode_t before = ::umask(022);
  TempDir temp;
};

TEST_F(PrivateFiles, AreTheUsersAlone) {
  ::chmod(temp.path().c_str(), 0755);
  ASSERT_TRUE(restrict_directory(temp.path(), std::nullopt).has_value());
  EXPECT_EQ(mode_of(temp.path()), 0700u);
  write_for(std::nullopt);
  std::ofstream(temp.file("weights")) << 'x';
  EXPECT_EQ(mode_of(temp.file("weights")), 0600u);
}

TEST_F(PrivateFiles, AreTheGroupsToo) {
  write_for(::getegid());
  fs::create_directory(temp.file("versions"));
  ::chmod(temp.file("versions").c_str(), 0700);
  std::ofstream(temp.file("versions/weights")) << 'x';
  ::chmod(temp.file("versions/weights").c_str(), 0600);
  std::ofstream(temp.file("keys.pem")) << "secret";
  ::chmod(temp.file("keys.pem").c_str(), 0600);
  ASSERT_TRUE(restrict_directory(temp.path(), ::getegid()).has_value());
  EXPECT_EQ(mode_of(temp.path()), 02750u);
  EXPECT_EQ(mode_of(temp.file("versions")), 02750u) << "what was made while there was no group";
  EXPECT_EQ(mode_of(temp.file("versions/weights")), 0640u);
  EXPECT_EQ(mode_of(temp.file("keys.pem")), 0600u) << "no version";
  fs::create_directory(temp.file("after"));
  EXPECT_EQ(mode_of(temp.file("after")), 02750u);
  ::chmod(temp.file("versions/weights").c_str(), 0600);
  ASSERT_TRUE(restrict_directory(temp.path(), ::getegid()).has_value());
  EXPECT_EQ(mode_of(temp.file("versions/weights")), 0640u) << "and later, when the directory is open already";
}

TEST_F(PrivateFiles, ThatAreNotThereAreForOthersToTell) {
  EXPECT_TRUE(restrict_directory(temp.file("none"), std::nullopt).has_value());
}

}  // namespace
}  // namespace weightcast
