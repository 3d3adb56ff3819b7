#include "base/posix_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/patch/temp_dir.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

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
      const auto opened = files.open(dir.file(name), {.write = write});
      ASSERT_FALSE(opened.has_value()) << name;
      EXPECT_EQ(opened.error().code, Errc::kInvalidArgument) << opened.error().message();
      EXPECT_THAT(opened.error().message(), HasSubstr(dir.file(name) + ": it is a"));
      EXPECT_THAT(opened.error().message(), HasSubstr("regular file"));
    }
    EXPECT_FALSE(read_file(files, dir.file(name), 100).has_value()) << name;
  }
  const auto directory = files.open_directory(dir.path());
  ASSERT_TRUE(directory.has_value());
  EXPECT_FALSE((*directory)->open("fifo", {}).has_value());
}

TEST(PosixFileSystem, ReadsNoFileBeyondItsLimitAndSaysIt) {
  PosixFileSystem files;
  const TempDir dir;
  dir.write("large", "");
  std::filesystem::resize_file(dir.file("large"), std::uint64_t{1} << 40);  // nothing but a hole
  const auto read = read_file(files, dir.file("large"), 4096);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Errc::kTooLarge);
  EXPECT_THAT(read.error().message(), HasSubstr("4.0 KiB at most"));
}

}  // namespace
}  // namespace weightcast
