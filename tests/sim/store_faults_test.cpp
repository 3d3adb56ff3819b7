// The real Store and its recovery on a disk that fails: at every call of a recovery and of a first start, and by damage
// of every file. store_soak.cpp has schedules of faults.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "tests/result_matchers.h"
#include "tests/sim/describe_store.h"
#include "tests/sim/state_archive.h"
#include "tests/sim/store_host.h"
#include "transport/io/store/store_work.h"

namespace weightcast::sim {
namespace {

namespace fs = std::filesystem;

// ---- Recovery of the golden state directories, one fault at a time.

class StoreRecoveryFault : public testing::TestWithParam<const char*> {
 protected:
  StoreRecoveryFault() {
    const fs::path path =
        fs::path(WEIGHTCAST_STORE_GOLDEN) / fmt::format("form_{}", kRecordForm) / (std::string(GetParam()) + ".state");
    std::ifstream in(path, std::ios::binary);
    archive_.assign(std::istreambuf_iterator<char>(in), {});
  }

  /// A host with that state directory, every byte and name of it on the platter.
  [[nodiscard]] std::unique_ptr<StoreHost> make_host(std::uint64_t seed = 1) const {
    auto host = std::make_unique<StoreHost>(seed);
    EXPECT_TRUE(unpack_directory(host->files, archive_, "/").has_value());
    sync_all(host->files, "/");
    return host;
  }

  static void sync_all(FileSystem& files, const fs::path& path) {
    EXPECT_TRUE(sync_directory(files, path).has_value());
    const std::vector<std::string> names = *files.list(path);
    for (const std::string& name : names) {
      const FileInfo info = *files.link_info(path / name);
      if (info.is_directory()) sync_all(files, path / name);
      if (info.is_file()) {
        EXPECT_TRUE((*files.open(path / name, {.write = true}))->sync_data().has_value());
      }
    }
  }

  static std::vector<fs::path> files_below(FileSystem& files, const fs::path& path) {
    std::vector<fs::path> found;
    const std::vector<std::string> names = *files.list(path);
    for (const std::string& name : names) {
      const FileInfo info = *files.link_info(path / name);
      if (info.is_file()) found.push_back(path / name);
      if (!info.is_directory()) continue;
      for (const fs::path& file : files_below(files, path / name)) found.push_back(file);
    }
    return found;
  }

  static std::string describe_after_start(StoreHost& host) {
    if (!host.start()) return "not opened: " + host.open_error->message();
    return host.files.observe([&](FileSystem& files) { return describe(*host.store, files); });
  }

  std::string archive_;
};

// What cannot be read now is not wrong: whatever call fails, the next start finds all.
TEST_P(StoreRecoveryFault, FailedCallCostsNothing) {
  std::unique_ptr<StoreHost> host = make_host();
  const std::uint64_t before = host->files.calls();
  const std::string whole = describe_after_start(*host);
  const std::uint64_t calls = host->files.calls() - before;
  std::uint64_t refused = 0;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    for (const int error : {EIO, EACCES, ETIMEDOUT}) {
      SCOPED_TRACE(testing::Message() << "call " << call << ", " << std::strerror(error));
      host = make_host();
      host->files.fail_call(call, error);
      if (!host->start()) {
        ++refused;
        EXPECT_NE(host->open_error->detail.find(std::strerror(error)), std::string::npos)
            << host->open_error->message();
        EXPECT_NE(host->open_error->detail.find(kState.native()), std::string::npos) << host->open_error->message();
      }
      ASSERT_EQ(describe_after_start(*host), whole);
    }
  }
  EXPECT_GT(refused, calls);
}

TEST_P(StoreRecoveryFault, CrashOfARecoveryCostsNothing) {
  std::unique_ptr<StoreHost> host = make_host();
  const std::uint64_t before = host->files.changes();
  const std::string whole = describe_after_start(*host);
  const std::uint64_t changes = host->files.changes() - before;
  for (std::uint64_t change = 1; change <= changes; ++change) {
    for (std::uint64_t cut = 0; cut < 4; ++cut) {
      SCOPED_TRACE(testing::Message() << "change " << change << ", cut " << cut);
      host = make_host(1 + cut);
      host->files.kill_before_change(host->files.changes() + change);
      static_cast<void>(host->start());  // nobody waits for the trash to be emptied
      ASSERT_TRUE(host->files.killed());
      host->end_process();
      if (cut == 0) {
        host->files.restart();
      } else {
        host->files.power_cut();
      }
      ASSERT_EQ(describe_after_start(*host), whole);
    }
  }
}

// Damage is found, and costs what it damaged.
TEST_P(StoreRecoveryFault, DamagedFileIsNeverTakenForWhole) {
  const std::vector<fs::path> victims = files_below(make_host()->files, kState);
  Random random(1);
  for (const fs::path& victim : victims) {
    for (unsigned damage = 0; damage < 12; ++damage) {
      SCOPED_TRACE(testing::Message() << victim << ", damage " << damage);
      const std::unique_ptr<StoreHost> host = make_host();
      const std::unique_ptr<File> file = *host->files.open(victim, {.write = true});
      const std::uint64_t size_bytes = file->info()->size_bytes;
      std::string garbage(1 + random.below(100), '\0');
      for (char& byte : garbage) byte = static_cast<char>(random.next());
      switch (damage) {
        case 0: ASSERT_TRUE(file->truncate(0).has_value()); break;
        case 1: ASSERT_TRUE(file->truncate(size_bytes / 2).has_value()); break;
        case 2: ASSERT_TRUE(file->truncate(size_bytes + 1).has_value()); break;
        case 3: ASSERT_TRUE(host->files.remove(victim).has_value()); break;
        case 4:
          ASSERT_TRUE(host->files.remove(victim).has_value());
          ASSERT_TRUE(host->files.make_directory(victim).has_value());
          break;
        case 5: ASSERT_TRUE(write_fully(*file, 0, std::as_bytes(std::span(garbage)), "garbage").has_value()); break;
        case 6:
          ASSERT_TRUE(write_fully(*file, size_bytes, std::as_bytes(std::span(garbage)), "garbage").has_value());
          break;
        default:
          if (size_bytes == 0) continue;
          host->files.flip_bit(victim, random.below(size_bytes), static_cast<unsigned>(random.below(8)));
      }
      if (!host->start()) {
        // A directory that somebody put there, or the number of the form was hit.
        const bool named = host->open_error->detail.find(victim.native()) != std::string::npos;
        EXPECT_TRUE(named && (damage == 4 || host->open_error->code == Errc::kUnsupported))
            << host->open_error->message();
        continue;
      }
      host->files.observe([&](FileSystem& files) {
        const std::string text = describe(*host->store, files);
        EXPECT_EQ(text.find("wrong"), std::string::npos) << text;
        const Result<fs::path> current = files.read_link(kState / "current");
        EXPECT_EQ(current.has_value(), host->store->current() != kNoVersion);
      });
      // And the next start finds the same.
      const std::string text = host->files.observe([&](FileSystem& files) { return describe(*host->store, files); });
      EXPECT_EQ(describe_after_start(*host), text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, StoreRecoveryFault,
                         testing::Values("origin", "worker_full", "worker_patch", "worker_packed", "worker_not_synced",
                                         "in_place_half_made", "in_place_not_synced"),
                         [](const auto& state) { return std::string(state.param); });

// ---- Syncs that fail, and lose what they should have written.

class StoreLossySync : public testing::TestWithParam<bool> {};

// The `call`-th call after version 2 was installed fails, in turn.
TEST_P(StoreLossySync, VersionThatTheDiskLostIsNotCurrentAnyMore) {
  const bool single_copy = GetParam();
  std::uint64_t times_lost = 0, times_kept = 0;
  for (std::uint64_t call = 1; call < 120; ++call) {
    SCOPED_TRACE(testing::Message() << "call " << call);
    StoreHost host(call);
    host.store_options.single_copy = single_copy;
    ASSERT_TRUE(host.start());
    ASSERT_TRUE(host.receive_durably(snapshot(1)).has_value());
    Version lost{};
    host.store->on_lost([&](Version version, const Error& why) {
      lost = version;
      EXPECT_EQ(why.code, Errc::kCorrupt);
    });
    ASSERT_TRUE(host.receive(single_copy ? patch_to(2) : snapshot(2)).has_value());
    host.files.set_faults({.lossy_sync = 1});
    host.files.fail_call(call, EIO);
    host.pass(std::chrono::minutes(1));
    host.files.fail_no_call();
    host.note_durable();
    lost == kNoVersion ? ++times_kept : ++times_lost;
    const Version current = lost == kNoVersion ? Version{2} : single_copy ? kNoVersion : Version{1};
    EXPECT_EQ(host.store->current(), current);
    EXPECT_EQ(host.store->find(Version{2}) == nullptr, lost == Version{2});
    if (current != kNoVersion) {
      ASSERT_NE(host.store->find(current), nullptr);
      EXPECT_TRUE(host.store->find(current)->durable);
      EXPECT_TRUE(host.holds(kState / "current", snapshot(current.value)));
    }
    EXPECT_THAT(host.receive(current == kNoVersion ? snapshot(2) : patch_to(current.value + 1)), Succeeds());
    host.cut_power();
    ASSERT_TRUE(host.start()) << host.open_error->message();
    const Version left = host.store->current();
    EXPECT_GE(left, single_copy ? kNoVersion : host.durable);
    EXPECT_TRUE(left == kNoVersion || host.holds(kState / "current", snapshot(left.value)));
    if (HasFailure()) return;
  }
  EXPECT_GT(times_lost, 0u);
  EXPECT_GT(times_kept, 0u);
}

// After a failed sync the kernel believes that bytes are on the disk which are in its memory alone, and another process
// reads them.
TEST_P(StoreLossySync, WhatTheNextStartCallsDurableIsOnTheDisk) {
  const bool single_copy = GetParam();
  // The seed decides whether what is lost can still be read.
  for (std::uint64_t run = 0; run < 60 * 8; ++run) {
    const std::uint64_t seed = run / 60, call = run % 60 + 1;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", call " << call << " fails");
    StoreHost host(seed);
    host.store_options.single_copy = single_copy;
    ASSERT_TRUE(host.start());
    ASSERT_TRUE(host.receive_durably(snapshot(1)).has_value());
    ASSERT_TRUE(host.receive(single_copy ? patch_to(2) : snapshot(2)).has_value());
    host.files.set_faults({.lossy_sync = 1});
    host.files.fail_call(call, EIO);
    host.pass(std::chrono::seconds(1));
    host.files.fail_no_call();
    host.files.kill();
    host.end_process();
    host.files.set_faults({});
    host.files.restart();
    ASSERT_TRUE(host.start()) << host.open_error->message();
    host.note_durable();
    host.cut_power();
    ASSERT_TRUE(host.start()) << host.open_error->message();
    ASSERT_GE(host.store->current(), host.durable);
  }
}

INSTANTIATE_TEST_SUITE_P(, StoreLossySync, testing::Bool(),
                         [](const auto& single) { return single.param ? "SingleCopy" : "Beside"; });

TEST(StoreWork, WritingAgainStopsWhenTheNodeDoes) {
  StoreHost host(1);
  ASSERT_TRUE(host.start());
  ASSERT_TRUE(host.receive(snapshot(1)).has_value());
  const StoreLayout layout(host.files, kState);
  const auto files = VersionFiles::open(host.files, layout.complete(Version{1}), *FileTable::make(kFiles));
  ASSERT_TRUE(files.has_value());
  const Result<VersionRecord> record = read_record(host.files, layout.record(Version{1}));
  ASSERT_TRUE(record.has_value());
  std::atomic<bool> wanted = true;
  EXPECT_TRUE(write_again(layout, *record, **files, wanted).has_value());
  wanted = false;
  const std::uint64_t changes = host.files.changes();
  EXPECT_THAT(write_again(layout, *record, **files, wanted), FailsWith(Errc::kBusy));
  EXPECT_EQ(host.files.changes(), changes);
}

// ---- A first start that fails.

TEST(StoreFirstStart, ThatFailsAtAnyCallCostsTheNextNothingThatIsDurable) {
  // The seed decides what a power cut leaves of names that were not synced.
  for (std::uint64_t run = 0; run < 125 * 8; ++run) {
    const std::uint64_t seed = run / 125, call = run % 125 + 1;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", call " << call << " fails");
    StoreHost host{seed, {.has_memory = true}};
    host.store_options.place.memory_directory = kVersionsInMemory;
    host.store_options.keep_durable_every = 1;
    host.files.fail_call(call, EIO);
    const bool started = host.start();
    host.files.fail_no_call();
    ASSERT_TRUE(started || host.start());
    ASSERT_TRUE(host.receive_durably(snapshot(1)).has_value());
    host.cut_power();
    ASSERT_TRUE(host.start());
    ASSERT_EQ(host.store->current(), Version{1});
  }
}

}  // namespace
}  // namespace weightcast::sim
