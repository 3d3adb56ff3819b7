#include "worker/learner/spool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/files/posix_file_system.h"
#include "tests/patch/temp_dir.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SpoolTest : public testing::Test {
 protected:
  Spool open() {
    auto spool = Spool::open(files_, directory_);
    WC_CHECK(spool.has_value());
    return std::move(*spool);
  }
  Spool open(const std::string& run) {
    Spool spool = open();
    WC_CHECK(spool.set_run(run).has_value());
    return spool;
  }
  static Spool::Id add(Spool& spool, const std::string& payload) {
    const auto id = spool.add(payload);
    WC_CHECK(id.has_value());
    return *id;
  }
  /// What a worker has kept that ran before.
  void keep(const std::string& run, const std::vector<std::string>& payloads) {
    Spool spool = open(run);
    for (const std::string& payload : payloads) add(spool, payload);
  }
  static std::vector<std::string> contents(Spool& spool) {
    std::vector<std::string> all;
    for (const Spool::Id id : spool.records()) all.push_back(spool.read(id).value());
    return all;
  }
  [[nodiscard]] std::vector<std::filesystem::path> logs(const std::string& run) const {
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / run)) all.push_back(entry.path());
    std::sort(all.begin(), all.end());
    return all;
  }

  TempDir temp_;
  PosixFileSystem files_;
  const std::filesystem::path directory_ = temp_.file("spool");
};

TEST_F(SpoolTest, GivesBackWhatWasAddedInItsOrder) {
  {
    Spool spool = open("aa");
    add(spool, "one");
    const Spool::Id two = add(spool, "two");
    add(spool, "");
    ASSERT_TRUE(spool.remove(two).has_value());
    EXPECT_THAT(contents(spool), ElementsAre("one", ""));
  }
  Spool again = open();
  EXPECT_EQ(again.run(), "aa");
  add(again, "three");
  EXPECT_THAT(contents(again), ElementsAre("one", "two", "", "three")) << "what shares a file may come back";
}

TEST_F(SpoolTest, NeverGivesANumberTwice) {
  std::uint64_t next = 0;
  for (int life = 0; life < 5; ++life) {
    Spool spool = open();
    for (const std::uint64_t count : {1u, 5000u, 3u}) {
      const std::uint64_t first = spool.take_numbers(count).value();
      EXPECT_GE(first, next);
      next = first + count;
    }
  }
}

TEST_F(SpoolTest, SkipsWhatAKillHasLeftHalfWritten) {
  keep("aa", {"whole", "torn by a kill"});
  const std::filesystem::path log = logs("aa").front();
  const auto size = std::filesystem::file_size(log);
  for (std::uint64_t cut = 1; cut < 14 + 20; ++cut) {
    std::filesystem::resize_file(log, size - cut);
    Spool spool = open();
    EXPECT_THAT(contents(spool), ElementsAre("whole")) << cut;
  }
}

TEST_F(SpoolTest, SkipsWhatThePowerCutHasDamaged) {
  keep("aa", {"whole", "damaged"});
  const std::filesystem::path log = logs("aa").front();
  {
    std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('X');
  }
  Spool spool = open();
  EXPECT_THAT(contents(spool), ElementsAre("whole"));
  add(spool, "next");
  EXPECT_THAT(contents(spool), ElementsAre("whole", "next"));
}

TEST_F(SpoolTest, DeletesFilesWhoseRecordsAreGone) {
  Spool spool = open("aa");
  const std::string large(3'000'000, 'x');
  std::vector<Spool::Id> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(add(spool, large));
  EXPECT_EQ(logs("aa").size(), 3u);
  for (const Spool::Id id : ids) ASSERT_TRUE(spool.remove(id).has_value());
  EXPECT_EQ(logs("aa").size(), 1u) << "the one that is appended to";
  add(spool, "small");
  EXPECT_EQ(logs("aa").size(), 1u);
  EXPECT_THAT(contents(spool), ElementsAre("small"));
}

TEST_F(SpoolTest, APlaceIsReadWithoutTheSpoolAlsoWhenItsRecordAndItsFileAreGone) {
  Spool spool = open("a");
  const Spool::Id first = add(spool, "first");
  const Spool::Place place = spool.place_of(first);
  static_cast<void>(add(spool, std::string(Spool::kFileBytes, 'x')));
  static_cast<void>(add(spool, "in the next file"));
  for (const Spool::Id id : spool.records()) ASSERT_TRUE(spool.remove(id).has_value());
  EXPECT_EQ(Spool::read(place).value(), "first");
}

TEST_F(SpoolTest, HoldsOneRunAtATime) {
  Spool spool = open("aa");
  add(spool, "of aa");
  ASSERT_TRUE(spool.set_run("bb").has_value());
  EXPECT_THAT(spool.records(), IsEmpty());
  add(spool, "of bb");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "aa"));
  ASSERT_TRUE(spool.set_run("bb").has_value());
  EXPECT_THAT(contents(spool), ElementsAre("of bb"));
  EXPECT_FALSE(spool.set_run("../evil").has_value());
  EXPECT_FALSE(spool.set_run("").has_value());
}

TEST_F(SpoolTest, IsOfOneProcess) {
  const Spool spool = open();
  const auto second = Spool::open(files_, directory_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, Errc::kBusy);
}

TEST_F(SpoolTest, RefusesAFileOfNumbersThatIsNone) {
  { static_cast<void>(open().take_numbers(1)); }
  std::ofstream(directory_ / "sequence") << "seven";
  const auto spool = Spool::open(files_, directory_);
  ASSERT_FALSE(spool.has_value());
  EXPECT_EQ(spool.error().code, Errc::kCorrupt);
  EXPECT_THAT(spool.error().message(), HasSubstr("sequence"));
  // The next number after that would be one that was given out before.
  std::ofstream(directory_ / "sequence") << "18446744073709551615\n";
  EXPECT_FALSE(Spool::open(files_, directory_).has_value());
}

TEST_F(SpoolTest, DeletesNothingButLogsOfOtherRuns) {
  for (const char* name : {"documents/thesis", "face/photograph", "bb/notes"}) {
    std::filesystem::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name) << "dear to somebody";
  }
  keep("bb", {"of bb"});
  keep("aa", {"of aa"});
  for (const char* name : {"documents/thesis", "face/photograph", "bb/notes"}) {
    EXPECT_TRUE(std::filesystem::exists(directory_ / name)) << name;
  }
  EXPECT_THAT(logs("bb"), ElementsAre(directory_ / "bb" / "notes"));
  Spool again = open("aa");
  EXPECT_THAT(contents(again), ElementsAre("of aa"));
}

TEST_F(SpoolTest, PassesByFilesThatAreNoLogs) {
  keep("aa", {"whole"});
  for (const char* name : {"notes.log", ".log", "5.log", "000000000000.log", "18446744073709551615.log"}) {
    std::ofstream(directory_ / "aa" / name) << "of somebody else";
  }
  Spool spool = open("aa");
  EXPECT_THAT(contents(spool), ElementsAre("whole"));
  add(spool, "next");
  EXPECT_THAT(contents(spool), ElementsAre("whole", "next"));
  EXPECT_EQ(logs("aa").size(), 5u + 2);
}

TEST_F(SpoolTest, RefusesWhatIsNoFileInALogsPlaceAndWhatIsTooLarge) {
  keep("aa", {"whole"});
  const std::string log = directory_ / "aa" / "000000000007.log";
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  const auto with_fifo = Spool::open(files_, directory_);
  ASSERT_FALSE(with_fifo.has_value());
  EXPECT_THAT(with_fifo.error().message(), HasSubstr(log + ": it is a FIFO"));
  std::filesystem::remove(log);
  std::ofstream(log) << "";
  std::filesystem::resize_file(log, std::uint64_t{1} << 40);  // nothing but a hole
  const auto with_hole = Spool::open(files_, directory_);
  ASSERT_FALSE(with_hole.has_value());
  EXPECT_THAT(with_hole.error().message(), HasSubstr("move it away"));
  std::filesystem::remove(log);
  EXPECT_TRUE(Spool::open(files_, directory_).has_value()) << "nothing was deleted";
}

TEST_F(SpoolTest, ARecordThatClaimsMoreThanThereCanBeIsTorn) {
  keep("aa", {"whole"});
  const std::filesystem::path log = logs("aa").front();
  {
    // Its length says 3 GiB, and the file has a hole of 60 MiB behind it.
    std::ofstream file(log, std::ios::app | std::ios::binary);
    const std::uint32_t size = 3u << 30;
    file.write(reinterpret_cast<const char*>(&size), sizeof size);
  }
  std::filesystem::resize_file(log, 60 << 20);
  Spool spool = open("aa");
  EXPECT_THAT(contents(spool), ElementsAre("whole"));
}

}  // namespace
}  // namespace weightcast
