#include "transport/node/history_archive.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/files/posix_file_system.h"
#include "tests/patch/temp_dir.h"

namespace weightcast {
namespace {

std::string reply_of(std::uint64_t version, std::size_t why_bytes = 10) {
  return local::encode_history(
      {.publications = {{.version = version, .why = std::string(why_bytes, 'w')}}, .workers = {{.name = "a"}}});
}

class HistoryArchiveTest : public testing::Test {
 protected:
  void write(std::uint64_t version, const std::string& reply) {
    const Status written = archive_.write(Version{version}, reply);
    ASSERT_TRUE(written.has_value()) << written.error().message();
  }
  [[nodiscard]] std::string file(std::uint64_t version) const {
    return temp_.file("history/" + std::to_string(version));
  }

  TempDir temp_;
  PosixFileSystem files_;
  HistoryArchive archive_{files_, temp_.path()};
};

TEST_F(HistoryArchiveTest, ReadsWhatWasWrittenLast) {
  EXPECT_TRUE(archive_.read().empty()) << "there is none";
  write(7, reply_of(7, 1));
  write(7, reply_of(7, 2));
  write(9, reply_of(9));
  const EarlierPublications all = archive_.read();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all.at(Version{7}).entry.why, "ww");
  EXPECT_EQ(all.at(Version{7}).reply, reply_of(7, 2));
}

TEST_F(HistoryArchiveTest, LeavesOutWhatIsDamagedAndWhatIsNotItsOwn) {
  write(1, reply_of(1)), write(2, reply_of(2)), write(3, reply_of(3)), write(4, reply_of(4));
  const auto put = [&](std::uint64_t version, const std::string& bytes) {
    static_cast<void>(temp_.write("history/" + std::to_string(version), bytes));
  };
  put(1, "");
  put(2, reply_of(2).substr(0, 9));
  put(3, reply_of(4));
  static_cast<void>(temp_.write("history/notes.txt", "of somebody"));
  const EarlierPublications all = archive_.read();
  EXPECT_EQ(all.size(), 1u);
  EXPECT_TRUE(all.contains(Version{4}));
}

TEST_F(HistoryArchiveTest, KeepsTheNewestWithinItsBounds) {
  for (std::uint64_t version = 1; version <= HistoryArchive::kFilesMax + 3; ++version)
    write(version, reply_of(version));
  EXPECT_FALSE(std::filesystem::exists(file(3)));
  EXPECT_TRUE(std::filesystem::exists(file(4)));
  EXPECT_EQ(archive_.read().size(), HistoryArchive::kFilesMax);
  // Twelve of the largest are more than all may be.
  for (std::uint64_t version = 1000; version < 1012; ++version) {
    write(version, reply_of(version, HistoryArchive::kFileBytesMax - 100));
  }
  EXPECT_FALSE(std::filesystem::exists(file(1003)));
  EXPECT_TRUE(std::filesystem::exists(file(1005)));
  std::uint64_t bytes = 0;
  for (const auto& [_, one] : archive_.read()) bytes += one.reply.size();
  EXPECT_LE(bytes, HistoryArchive::kBytesMax);
}

}  // namespace
}  // namespace weightcast
