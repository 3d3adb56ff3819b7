#include "transport/io/store/store_recovery.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <string>

#include "tests/damage_file.h"
#include "tests/result_matchers.h"
#include "tests/transport/io/store/store_fixture.h"
#include "transport/io/store/files/version_record.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

/// Constructs what a process leaves that died at some moment, then opens a store on it.
class StoreRecovery : public OneStore {
 protected:
  StoreRecovery() { EXPECT_TRUE(layout().create().has_value()); }

  void make_files(const fs::path& path, const Publication& p, bool with_bytes) {
    const auto files = VersionFiles::create(real_files(), path, *FileTable::make(p.manifest.files));
    ASSERT_TRUE(files.has_value());
    if (with_bytes) {
      ASSERT_TRUE(write_stream(**files, 0, p.bytes()).has_value());
    }
  }
  void make_record(const Publication& p, bool durable = false) {
    VersionRecord record{p.manifest, ChunkDigests(p.manifest)};
    record.digests.chunks = p.digests;
    record.digests.parts = ChunkSet(p.manifest.part_count(), true);
    record.durable = durable;
    ASSERT_TRUE(write_record(real_files(), layout().record(p.manifest.version), record).has_value());
  }
  void make_installed(const Publication& p, bool durable) {
    make_files(layout().complete(p.manifest.version), p, true);
    make_record(p, durable);
  }
  /// Nothing but what a healthy store has.
  void expect_tidy() {
    EXPECT_TRUE(fs::is_empty(layout().trash()));
    EXPECT_FALSE(fs::exists(fs::symlink_status(directory() / "current.tmp")));
    // A version that is being made durable has its record written anew.
    std::set<std::string> records;
    EXPECT_TRUE(eventually([&] {
      records.clear();
      for (const auto& entry : fs::directory_iterator(layout().records())) records.insert(entry.path().filename());
      return records.size() == store_->versions().size() + store_->partial().size() &&
             std::ranges::none_of(records, [](const std::string& name) { return name.ends_with(".tmp"); });
    })) << testing::PrintToString(records);
  }

  const Publication old_ = publication(4);
  const Publication new_ = publication(5);
};

TEST_F(StoreRecovery, RecordOfAnotherReleaseIsNamedAndNothingIsTouched) {
  make_installed(old_, true);
  const FileRef record = *real_files().open(layout().record(Version{4}), {.write = true});
  for (const std::uint8_t form : {std::uint8_t{1}, static_cast<std::uint8_t>(kRecordForm + 1)}) {
    const std::byte bytes[4] = {std::byte{form}};
    ASSERT_TRUE(write_fully(*record, 8, bytes, "record").has_value());
    EXPECT_THAT(
        recover_store(layout(), false, 2),
        FailsWith(Errc::kUnsupported, fmt::format("a record of form {}, this release reads form 5;", form)));
    EXPECT_TRUE(fs::exists(layout().record(Version{4})));
    EXPECT_TRUE(fs::exists(layout().complete(Version{4})));
  }
}

TEST_F(StoreRecovery, ArrivingHoldsOnlyChunksThatMatch) {
  make_files(layout().incoming(Version{5}), new_, true);
  make_record(new_);
  flip_bit(layout().incoming(Version{5}) / "b", 30'000);  // byte 40,001 of the stream, in chunk 9
  open();
  ASSERT_EQ(store_->partial().size(), 1u);
  const ChunkSet held = store_->partial()[0].held;
  EXPECT_EQ(held.count(), held.size() - 1);
  EXPECT_FALSE(held.contains(ChunkIndex{9}));
  expect_tidy();
}

TEST_F(StoreRecovery, ArrivingHolesAreNotHeld) {
  make_files(layout().incoming(Version{5}), new_, false);
  make_record(new_);
  open();
  ASSERT_EQ(store_->partial().size(), 1u);
  EXPECT_EQ(store_->partial()[0].held.count(), 0u);
}

// What is appended behind an entry that is not whole is never read.
TEST_F(StoreRecovery, ArrivingRecordWhoseLastEntryIsTornTakesMoreEntries) {
  make_files(layout().incoming(Version{5}), new_, true);
  const VersionRecord record{new_.manifest, ChunkDigests(new_.manifest)};
  ASSERT_TRUE(write_record(real_files(), layout().record(Version{5}), record).has_value());
  std::ofstream(layout().record(Version{5}), std::ios::app) << "half an entry";
  open();
  ASSERT_TRUE(install(new_).has_value());
  await_durable(Version{5});
  open();
  ASSERT_NE(store_->find(Version{5}), nullptr);
  EXPECT_TRUE(store_->find(Version{5})->durable);
}

TEST_F(StoreRecovery, CompleteAndArrivingKeepsTheComplete) {
  make_installed(new_, true);
  make_files(layout().incoming(Version{5}), new_, false);
  open();
  EXPECT_TRUE(holds(directory() / "current", new_));
  EXPECT_TRUE(store_->partial().empty());
  expect_tidy();
}

TEST_F(StoreRecovery, StrangersAreKeptAside) {
  make_installed(new_, true);
  for (const char* folder : {"incoming", "versions", "records"})
    std::ofstream(directory() / folder / "notes") << folder;
  fs::create_directory(directory() / "current");
  open();
  EXPECT_EQ(store_->current(), Version{5});
  EXPECT_TRUE(holds(directory() / "current", new_));
  EXPECT_EQ(std::distance(fs::directory_iterator(layout().aside()), {}), 4);
  expect_tidy();
}

class StoreForeignFiles : public StoreRecovery {
 protected:
  /// What a file system or an editor leaves.
  static void add_foreign(const fs::path& folder) {
    fs::create_directory(folder / "lost+found");
    std::ofstream(folder / ".nfs0001") << "open elsewhere";
    std::ofstream(folder / "notes") << "mine";
  }
  [[nodiscard]] std::vector<std::string> aside() const { return *real_files().list(layout().aside()); }
};

TEST_F(StoreForeignFiles, DoNotCostTheVersionThatTheyAreIn) {
  make_installed(new_, true);
  add_foreign(layout().complete(Version{5}));
  open();
  EXPECT_EQ(store_->current(), Version{5});
  EXPECT_TRUE(fs::exists(directory() / "current" / "notes"));
  EXPECT_TRUE(aside().empty());
  // They outlive it, too.
  options_.versions_kept = 1;
  open();
  ASSERT_TRUE(install(publication(6)).has_value());
  ASSERT_TRUE(eventually([&] { return store_->find(Version{5}) == nullptr && aside().size() == 3; }));
  EXPECT_EQ(aside(), (std::vector<std::string>{".nfs0001.0", "lost+found.0", "notes.0"}));
}

TEST_F(StoreForeignFiles, OutliveADamagedVersion) {
  make_installed(new_, true);
  add_foreign(layout().complete(Version{5}));
  fs::resize_file(layout().complete(Version{5}) / "b", 3);
  open();
  EXPECT_EQ(store_->current(), kNoVersion);
  EXPECT_EQ(aside(), (std::vector<std::string>{".nfs0001.0", "lost+found.0", "notes.0"}));
}

// Which of its files are a version's is not known: all are that may be.
TEST_F(StoreForeignFiles, OutliveAVersionWithoutRecordIfTheyCannotBeItsOwn) {
  make_files(layout().complete(Version{5}), new_, true);
  add_foreign(layout().complete(Version{5}));
  open();
  EXPECT_EQ(store_->current(), kNoVersion);
  EXPECT_EQ(aside(), (std::vector<std::string>{".nfs0001.0", "lost+found.0"}));
}

TEST_F(StoreForeignFiles, WithThePlaceOfOneOfOursAreMovedAside) {
  make_installed(new_, true);
  std::ofstream(layout().complete(Version{6})) << "a file where versions are directories";
  fs::create_directory(layout().record(Version{6}));
  fs::create_symlink("/elsewhere", directory() / "current");
  open();
  EXPECT_EQ(store_->current(), Version{5});
  EXPECT_TRUE(holds(directory() / "current", new_));
  EXPECT_EQ(aside(), (std::vector<std::string>{"000000000006.0", "000000000006.1", "current.0"}));
}

TEST_F(StoreRecovery, RecordCutAnywhereNeverMakesAWrongVersion) {
  make_files(layout().incoming(Version{5}), new_, true);
  make_record(new_);
  const std::string whole = *read_file(real_files(), layout().record(Version{5}), kMiB);
  for (std::size_t size = 0; size <= whole.size(); size += 1) {
    std::ofstream(directory() / "cut", std::ios::trunc) << whole.substr(0, size);
    const Result<VersionRecord> record = read_record(real_files(), directory() / "cut");
    if (record.has_value()) {
      EXPECT_EQ(record->manifest, new_.manifest);
      EXPECT_EQ(record->digests.complete(), size == whole.size());
    }
    EXPECT_FALSE(record.has_value() && record->durable);
  }
  std::string damaged = whole;
  damaged[20] ^= 1;
  std::ofstream(directory() / "cut", std::ios::trunc) << damaged;
  EXPECT_EQ(read_record(real_files(), directory() / "cut").error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace weightcast
