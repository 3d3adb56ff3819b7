#include "patch/apply/undo.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "patch/changes/differing_cells.h"
#include "tests/patch/cells.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

class UndoJournalTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.file("undo"); }
  UndoJournal create() {
    auto journal = UndoJournal::create(real_files(), path());
    WC_CHECK(journal.has_value());
    return std::move(*journal);
  }
  /// The bytes of `before` that differ in `after`.
  static Status record(UndoJournal& journal, std::uint64_t offset, Bytes before, Bytes after) {
    std::vector<std::uint32_t> cells;
    append_differing_cells(before, after, 1, 0, cells);
    std::vector<std::byte> old;
    for (const std::uint32_t cell : cells) old.push_back(before[cell]);
    return journal.record(offset, 1, cells, old);
  }
  /// Makes `data` into `after`, as the journal wants it, up to `bytes`.
  static Status overwrite(MutableBytes data, Bytes after, UndoJournal& journal, std::size_t bytes) {
    constexpr std::size_t kRange = 4096;
    for (const bool write : {false, true}) {
      for (std::size_t at = 0; at < data.size(); at += kRange) {
        const std::size_t size = std::min(kRange, data.size() - at);
        if (!write) WC_TRY(record(journal, at, data.subspan(at, size), after.subspan(at, size)));
        if (write && at < bytes) std::ranges::copy(after.subspan(at, size), data.begin() + std::ptrdiff_t(at));
      }
      if (!write) WC_TRY(journal.sync());
    }
    return {};
  }
  Result<std::size_t> recover_into(MutableBytes data) {
    return recover(
        real_files(), path(),
        [&](std::uint64_t offset, Bytes old) {
          WC_CHECK(offset + old.size() <= data.size());
          std::copy(old.begin(), old.end(), data.begin() + std::ptrdiff_t(offset));
          return Status();
        },
        [] { return Status(); });
  }

  TempDir folder_;
};

TEST_F(UndoJournalTest, PutsBackWhatWasOverwrittenWhollyOrInPart) {
  const auto [before, after] = test::make_versions(20000, 0.02, 1);
  for (const std::size_t bytes : {before.stream.size(), before.stream.size() / 2}) {
    std::vector<std::byte> data = before.stream;
    {
      UndoJournal journal = create();
      ASSERT_TRUE(overwrite(data, after.stream, journal, bytes).has_value());
      EXPECT_NE(data, before.stream);
      EXPECT_EQ(data == after.stream, bytes == data.size());
    }
    EXPECT_LT(std::filesystem::file_size(path()), before.stream.size() / 4);
    ASSERT_THAT(recover_into(data), Succeeds());
    EXPECT_EQ(data, before.stream);
    EXPECT_EQ(recover_into(data).error().code, Errc::kNotFound);
  }
}

TEST_F(UndoJournalTest, PutsBackCellsOfAnyWidthWhereTheyStood) {
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    std::vector<std::byte> data(8000);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = std::byte(i * 7);
    const std::vector<std::byte> before = data;
    const std::vector<std::uint32_t> cells{0, 1, 2, 90, 500, 501};
    std::vector<std::byte> old;
    for (const std::uint32_t cell : cells) {
      const auto first = data.begin() + 16 + std::ptrdiff_t(cell) * width;
      old.insert(old.end(), first, first + width);
      std::fill_n(first, width, std::byte{0xee});
    }
    ASSERT_TRUE(create().record(16, width, cells, old).has_value());
    ASSERT_NE(data, before);
    ASSERT_TRUE(recover_into(data).has_value());
    EXPECT_EQ(data, before) << width;
  }
}

TEST_F(UndoJournalTest, RefusesASecondOneWhileThereIsOne) {
  const UndoJournal journal = create();
  EXPECT_EQ(UndoJournal::create(real_files(), path()).error().code, Errc::kAlreadyExists);
}

// Its record claims 1 TiB, which the file has as a hole.
TEST_F(UndoJournalTest, ARecordThatClaimsMoreThanOneCanHaveIsTorn) {
  std::vector<std::byte> old(64, std::byte{1}), fresh(64, std::byte{2});
  {
    UndoJournal journal = create();
    ASSERT_TRUE(record(journal, 0, old, fresh).has_value());
  }
  {
    std::ofstream file(path(), std::ios::binary | std::ios::app);
    const std::uint32_t magic = 0x4f444e57;
    const std::uint64_t length = std::uint64_t{1} << 40;
    file.write(reinterpret_cast<const char*>(&magic), sizeof magic);
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
  }
  std::filesystem::resize_file(path(), std::uint64_t{1} << 41);
  std::vector<std::byte> data(64, std::byte{2});
  ASSERT_THAT(recover_into(data), Succeeds());
  EXPECT_EQ(data, old);
}

// A torn record was not yet relied on: whatever its length, the whole records before it count.
TEST_F(UndoJournalTest, IgnoresATornRecord) {
  std::vector<std::byte> old(64, std::byte{1}), fresh(64, std::byte{2});
  {
    UndoJournal journal = create();
    ASSERT_TRUE(record(journal, 0, old, fresh).has_value());
  }
  const auto first_end = std::filesystem::file_size(path());
  std::filesystem::copy_file(path(), folder_.file("one"));
  std::filesystem::remove(path());
  {
    UndoJournal journal = create();
    ASSERT_TRUE(record(journal, 0, old, fresh).has_value());
    ASSERT_TRUE(record(journal, 64, old, fresh).has_value());
  }
  const auto second_end = std::filesystem::file_size(path());
  std::filesystem::copy_file(path(), folder_.file("two"));
  for (auto size = first_end; size < second_end; ++size) {
    std::filesystem::copy_file(folder_.file("two"), path(), std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(path(), size);
    std::vector<std::byte> data(128, std::byte{2});
    const auto recovered = recover_into(data);
    ASSERT_TRUE(recovered.has_value());
    ASSERT_EQ(*recovered, 1u);
    ASSERT_TRUE(data[0] == std::byte{1} && data[63] == std::byte{1} && data[64] == std::byte{2});
  }
}

TEST_F(UndoJournalTest, JournalThatWasCutShortWhileItWasMadeHoldsNothing) {
  static_cast<void>(create());
  const auto whole = std::filesystem::file_size(path());
  std::filesystem::remove(path());
  for (std::uintmax_t size = 0; size < whole; ++size) {
    static_cast<void>(create());
    std::filesystem::resize_file(path(), size);
    std::vector<std::byte> nothing;
    EXPECT_THAT(recover_into(nothing), Gives(0u)) << size;
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
}

TEST_F(UndoJournalTest, JournalOfWhichAPowerCutLeftTheSizeAndNoBytesHoldsNothing) {
  static_cast<void>(create());
  const auto size = std::filesystem::file_size(path());
  std::ofstream(path(), std::ios::trunc) << std::string(size, '\0');
  std::vector<std::byte> nothing;
  EXPECT_THAT(recover_into(nothing), Gives(0u));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(UndoJournalTest, RefusesWhatIsNoJournalAndLeavesIt) {
  std::ofstream(path()) << "something else that is long enough to be read";
  std::vector<std::byte> nothing;
  EXPECT_EQ(recover_into(nothing).error().code, Errc::kCorrupt);
  EXPECT_TRUE(std::filesystem::exists(path()));
}

TEST_F(UndoJournalTest, SaysThatTheDiskIsFullAndStaysWhole) {
  std::vector<std::byte> old(100000), fresh(100000, std::byte{2});
  UndoJournal journal = create();
  rlimit limit{}, small{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  small = limit;
  small.rlim_cur = 50000;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const Status full = record(journal, 0, old, fresh);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(full.has_value());
  ASSERT_TRUE(record(journal, 7, Bytes(old).first(10), Bytes(fresh).first(10)).has_value());
  EXPECT_EQ(*recover_into(fresh), 1u);
}

}  // namespace
}  // namespace weightcast
