#include "base/files/posix_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <thread>

#include "tests/patch/temp_dir.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

TEST(PosixFileSystem, RefusesAtOnceWhatIsNoRegularFile) {
  PosixFileSystem files;
  const TempDir dir;
  // Whoever opens a FIFO to read waits for its other end, and so for ever: this test would not come to its end.
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  std::filesystem::create_directory(dir.file("directory"));
  std::filesystem::create_symlink("/dev/zero", dir.file("device"));
  for (const char* name : {"fifo", "directory", "device"}) {
    for (const bool write : {false, true}) {
      if (write && std::string_view(name) == "directory") continue;  // the kernel's own words
      EXPECT_THAT(files.open(dir.file(name), {.write = write}),
                  FailsWith(Errc::kInvalidArgument, dir.file(name) + ": it is a", "regular file"))
          << name;
    }
    EXPECT_FALSE(read_file(files, dir.file(name), 100).has_value()) << name;
  }
  const auto directory = files.open_directory(dir.path());
  ASSERT_TRUE(directory.has_value());
  EXPECT_FALSE((*directory)->open("fifo", {}).has_value());
}

TEST(PosixFileSystem, WhatSomebodyElseRemovesMeanwhileIsRemoved) {
  PosixFileSystem files;
  const TempDir dir;
  for (int folder = 0; folder < 500; ++folder) {
    std::filesystem::create_directories(dir.file("trash/" + std::to_string(folder) + "/below"));
  }
  Status other;
  std::thread thread([&] { other = remove_all(files, dir.file("trash")); });
  const Status status = remove_all(files, dir.file("trash"));
  thread.join();
  EXPECT_TRUE(status.has_value()) << status.error().message();
  EXPECT_TRUE(other.has_value()) << other.error().message();
  EXPECT_FALSE(std::filesystem::exists(dir.file("trash")));
}

TEST(PosixFileSystem, ReplacesAFileThroughNoLinkThatAnotherUserHasLeft) {
  PosixFileSystem files;
  const TempDir dir;
  dir.write("precious", "bytes");
  std::filesystem::create_symlink(dir.file("precious"), dir.file("address.tmp"));
  EXPECT_FALSE(replace_file(files, dir.file("address"), "text", Synced::kNothing).has_value());
  EXPECT_EQ(read_file(files, dir.file("precious"), 100).value(), "bytes");
}

TEST(PosixFileSystem, ReadsNoFileBeyondItsLimitAndSaysIt) {
  PosixFileSystem files;
  const TempDir dir;
  dir.write("large", "");
  std::filesystem::resize_file(dir.file("large"), std::uint64_t{1} << 40);  // nothing but a hole
  EXPECT_THAT(read_file(files, dir.file("large"), 4096), FailsWith(Errc::kTooLarge, "4.0 KiB at most"));
}

TEST(PosixFileSystem, ADirectoryOpensPathsBelowItAndFollowsNoLinkOnTheWay) {
  PosixFileSystem files;
  const TempDir dir, outside;
  std::filesystem::create_directories(dir.file("a/b"));
  outside.write("c", "secret");
  const auto directory = files.open_directory(dir.path());
  ASSERT_TRUE(directory.has_value());
  {
    const OpenOptions options{.write = true, .create = Create::kNew, .permissions = 0755};
    ASSERT_THAT((*directory)->open("a/b/c", options), Succeeds());
  }
  const auto info = (*directory)->info("a/b/c");
  ASSERT_TRUE(info.has_value());
  EXPECT_TRUE(info->is_file() && info->executable);
  const auto below = (*directory)->open_directory("a/b");
  ASSERT_TRUE(below.has_value());
  EXPECT_TRUE((*below)->sync().has_value());
  EXPECT_TRUE((*below)->info("c").has_value());
  EXPECT_EQ((*directory)->info("a/x/c").error().code, Errc::kNotFound);

  std::filesystem::create_symlink(outside.path(), dir.file("a/link"));
  EXPECT_EQ((*directory)->open("a/link/c", {}).error().code, Errc::kInvalidArgument);
  EXPECT_EQ((*directory)->open("a/b/c/d", {}).error().code, Errc::kInvalidArgument);
  EXPECT_EQ((*directory)->info("a/link/c").error().code, Errc::kInvalidArgument);
  EXPECT_FALSE((*directory)->open_directory("a/link").has_value());
  std::filesystem::create_symlink(outside.file("c"), dir.file("a/file"));
  EXPECT_FALSE((*directory)->open("a/file", {.follow_links = false}).has_value());
  EXPECT_TRUE((*directory)->info("a/file")->is_link());
}

}  // namespace
}  // namespace weightcast
