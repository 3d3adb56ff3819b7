// Versions in memory: what the log on the disk makes of them after a power cut, a change of place, and damage.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>

#include "sim/host/run_version.h"
#include "tests/result_matchers.h"
#include "tests/sim/store_host.h"

namespace weightcast::sim {
namespace {

struct StoreLogTest : testing::Test {
  StoreLogTest() { use_memory(true); }

  void use_memory(bool memory) {
    host.store_options.place.memory_directory = memory ? kVersionsInMemory : std::filesystem::path();
  }
  void receive(const Publication& p) { ASSERT_THAT(host.receive_durably(p), Succeeds()); }
  /// Version 1, which is the anchor, and patches up to `version`.
  void receive_up_to(std::uint64_t version) {
    ASSERT_THAT(host.start_with_first(), Succeeds());
    for (std::uint64_t v = 2; v <= version; ++v) receive(patch_to(v));
  }
  void expect_current(std::uint64_t version) {
    ASSERT_TRUE(host.store) << host.open_error->message();
    EXPECT_EQ(host.store->current(), Version{version});
    EXPECT_TRUE(version == 0 || host.holds(kState / "current", snapshot(version)));
  }
  /// A new process, with that version in use.
  void start_with(std::uint64_t version) {
    ASSERT_TRUE(host.start()) << host.open_error->message();
    expect_current(version);
  }
  std::vector<std::string> names(const char* folder) {
    return host.files.list(kState / folder).value_or(std::vector<std::string>{"?"});
  }

  StoreHost host{1, {.has_memory = true}};
};

TEST_F(StoreLogTest, APowerCutLeavesTheNewestDurableVersion) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(4));
  EXPECT_FALSE(exists(host.files, kState / "versions")) << "on the disk";
  host.cut_power();
  ASSERT_NO_FATAL_FAILURE(start_with(4));
  EXPECT_TRUE(host.store->find(Version{4})->durable);
  receive(patch_to(5));
  expect_current(5);
}

TEST_F(StoreLogTest, AKillLeavesWhatIsInMemory) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(3));
  host.die();
  ASSERT_NO_FATAL_FAILURE(start_with(3));
  EXPECT_GE(host.store->versions().size(), 2u) << "nothing is made anew";
}

TEST_F(StoreLogTest, WritesThePatchesAndAnAnchorFromTimeToTime) {
  host.store_options.log.patches_max = 3;
  ASSERT_NO_FATAL_FAILURE(receive_up_to(3));
  EXPECT_EQ(names("anchors"), (std::vector<std::string>{"000000000001", "000000000001.record"}));
  EXPECT_EQ(names("patches").size(), 2u) << "those that the log needs";
  receive(patch_to(4));
  ASSERT_TRUE(host.clock->run_until([&] { return names("anchors").front() == "000000000004"; }));
  ASSERT_TRUE(host.clock->run_until([&] { return names("patches").empty(); }));
  EXPECT_EQ(names("anchors").size(), 2u);
}

TEST_F(StoreLogTest, AVersionThatCameWholeBecomesAnAnchor) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  receive(snapshot(5));
  ASSERT_TRUE(host.clock->run_until([&] { return names("anchors").size() == 2; }));
  EXPECT_EQ(names("anchors").front(), "000000000005");
  host.cut_power();
  ASSERT_NO_FATAL_FAILURE(start_with(5));
}

TEST(StoreLog, HoldsAnAnchorThatAKilledProcessCouldNotSync) {
  // The seed decides what a power cut leaves of names that were not synced.
  for (std::uint64_t run = 0; run < 80 * 3; ++run) {
    const std::uint64_t seed = run / 80, call = run % 80 + 1;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", call " << call << " fails");
    StoreHost host{seed, {.has_memory = true}};
    host.store_options.place.memory_directory = kVersionsInMemory;
    ASSERT_TRUE(host.start_with_first().has_value());
    ASSERT_TRUE(host.receive(snapshot(2)).has_value());
    host.files.fail_call(call, EIO);
    host.pass(std::chrono::seconds(8));
    host.die();
    host.files.fail_no_call();
    ASSERT_TRUE(host.start());
    ASSERT_TRUE(host.await_durable(Version{2}).has_value());
    host.cut_power();
    ASSERT_TRUE(host.start());
    ASSERT_EQ(host.store->current(), Version{2});
  }
}

TEST_F(StoreLogTest, APackedPayloadIsNotKeptForTheLog) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(1));
  ASSERT_THAT(host.receive(packed_payload(snapshot(2), 8192)), Succeeds());
  ASSERT_TRUE(host.clock->run_until([&] { return names("patches").empty(); }));
  EXPECT_EQ(names("anchors").front(), "000000000001") << "the next one is not made yet";
}

TEST_F(StoreLogTest, TheFirstVersionOfAnEmptyStoreDecidesWhereVersionsLie) {
  use_memory(false);
  std::vector<std::uint64_t> asked;
  host.store_options.choose_place = [&](std::uint64_t bytes) {
    asked.push_back(bytes);
    return StorePlace{kVersionsInMemory, "it fits"};
  };
  ASSERT_TRUE(host.start()) << host.open_error->message();
  host.store->retain({});
  EXPECT_EQ(host.store->place(), nullptr);
  // Of two that begin at once the first one decides, also if it is not wanted any more.
  std::optional<Error> called_off;
  host.store->begin(snapshot(1).manifest, [&](const Result<PartialVersion>& begun) { called_off = begun.error(); });
  host.store->discard(Version{1});
  receive(snapshot(2));
  ASSERT_TRUE(called_off);
  EXPECT_EQ(called_off->code, Errc::kNotFound);
  EXPECT_EQ(asked, (std::vector{snapshot(1).manifest.snapshot_bytes()}));
  ASSERT_NE(host.store->place(), nullptr);
  EXPECT_EQ(host.store->place()->why, "it fits");
  EXPECT_EQ(host.store->find(Version{2})->path.parent_path(), kVersionsInMemory / "versions");
  receive(patch_to(3));
  host.cut_power();
  // A store that is not empty is not asked.
  use_memory(true);
  ASSERT_NO_FATAL_FAILURE(start_with(3));
  EXPECT_EQ(host.store->place()->memory_directory, kVersionsInMemory);
  EXPECT_EQ(asked.size(), 1u);
}

TEST_F(StoreLogTest, AnImportDecidesToo) {
  use_memory(false);
  host.store_options.choose_place = [](std::uint64_t) { return StorePlace{{}, "it does not fit"}; };
  ASSERT_TRUE(host.start()) << host.open_error->message();
  ASSERT_THAT(host.import(snapshot(1)), Succeeds());
  EXPECT_EQ(host.store->place()->why, "it does not fit");
  EXPECT_EQ(host.store->find(Version{1})->path.parent_path(), kState / "versions");
}

TEST_F(StoreLogTest, VersionsThatFindNoPlaceInMemoryLieOnTheDisk) {
  use_memory(false);
  host.store_options.choose_place = [](std::uint64_t) { return StorePlace{kState / "lock" / "memory", "it fits"}; };
  ASSERT_TRUE(host.start()) << host.open_error->message();
  receive(snapshot(1));
  EXPECT_EQ(host.store->place()->memory_directory, "");
  EXPECT_NE(host.store->place()->why, "it fits");
  EXPECT_EQ(host.store->find(Version{1})->path.parent_path(), kState / "versions");
  ASSERT_NO_FATAL_FAILURE(start_with(1));
}

TEST_F(StoreLogTest, VersionsMoveToMemoryAndBack) {
  use_memory(false);
  ASSERT_THAT(host.start_with_first(), Succeeds());
  receive(patch_to(2));
  use_memory(true);
  ASSERT_NO_FATAL_FAILURE(start_with(2));
  EXPECT_EQ(host.store->find(Version{2})->path.parent_path(), kVersionsInMemory / "versions");
  EXPECT_EQ(names("versions").size(), 0u);
  receive(patch_to(3));
  host.end_process();
  use_memory(false);
  ASSERT_NO_FATAL_FAILURE(start_with(3));
  EXPECT_EQ(host.store->find(Version{3})->path.parent_path(), kState / "versions");
  EXPECT_TRUE(host.store->find(Version{3})->durable);
  EXPECT_TRUE(names("anchors").empty()) << "nobody goes on with the log";
  host.cut_power();
  ASSERT_NO_FATAL_FAILURE(start_with(3));
}

TEST_F(StoreLogTest, OfTheRunBeforeTheVersionInUseMovesToMemoryAndBack) {
  use_memory(false);
  ASSERT_TRUE(host.start());
  receive(snapshot(1));
  receive(snapshot(2));
  ASSERT_TRUE(host.follow_run(0xb, true).has_value());
  for (const bool memory : {true, false, true}) {
    use_memory(memory);
    ASSERT_TRUE(host.start()) << host.open_error->message();
    EXPECT_EQ(host.store->current(), kNoVersion);
    EXPECT_EQ(in_use(*host.store), RunVersion(1, Version{2}));
    EXPECT_TRUE(host.holds(kState / "current", snapshot(2)));
    host.cut_power();
  }
}

// A part of what the disk had of a version before it was in memory may come back, beside a record that calls it
// durable.
TEST_F(StoreLogTest, AVersionOnTheDiskIsNotBelievedWhileThereIsALog) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  host.end_process();
  const StoreLayout disk(host.files, kState);
  ASSERT_TRUE(make_directories(host.files, disk.versions()).has_value());
  const auto part = VersionFiles::create(host.files, disk.complete(Version{2}), *FileTable::make(kFiles));
  ASSERT_TRUE(part.has_value());
  use_memory(false);
  ASSERT_NO_FATAL_FAILURE(start_with(2));
}

TEST_F(StoreLogTest, TheLogEndsBeforeAPatchThatIsDamaged) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(4));
  host.end_process();
  host.files.flip_bit(kState / "patches" / "000000000003-000000000002" / kPatchFileName, 100, 3);
  host.cut_power();
  ASSERT_NO_FATAL_FAILURE(start_with(2));
  receive(snapshot(6));
  expect_current(6);
}

TEST_F(StoreLogTest, ADamagedAnchorIsNoVersion) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  host.end_process();
  host.files.flip_bit(kState / "anchors" / "000000000001" / "d/b", 100, 3);
  host.cut_power();
  ASSERT_NO_FATAL_FAILURE(start_with(0));
  receive(snapshot(6));
  host.cut_power();
  ASSERT_NO_FATAL_FAILURE(start_with(6));
}

TEST_F(StoreLogTest, WhatRotsInMemoryBecomesNoAnchor) {
  host.store_options.log.patches_max = 2;
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  ASSERT_THAT(host.receive(patch_to(3)), Succeeds());
  host.files.flip_bit(kVersionsInMemory / "versions" / "000000000003" / "d/b", 100, 3);
  std::optional<Version> lost;
  host.store->on_lost([&](Version version, const Error&) { lost = version; });
  ASSERT_TRUE(host.clock->run_until([&] { return lost.has_value(); }));
  EXPECT_EQ(lost, Version{3});
  EXPECT_EQ(names("anchors").front(), "000000000001");
}

/// The only copy lies in memory, and changes there.
struct StoreLogSingleCopyTest : StoreLogTest {
  StoreLogSingleCopyTest() { host.store_options.single_copy = true; }

  static constexpr const char* kStep = "000000000003-000000000002";
  [[nodiscard]] static std::filesystem::path only_copy(std::uint64_t version) {
    return kVersionsInMemory / "versions" / fmt::format("{:012}", version);
  }
  std::vector<std::string> journals() { return *host.files.list(kVersionsInMemory / "undo"); }
};

TEST_F(StoreLogSingleCopyTest, AStepWritesItsPatchAndNothingElseToTheDisk) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(4));
  EXPECT_EQ(host.store->versions().size(), 1u);
  EXPECT_EQ(host.store->find(Version{4})->path, only_copy(4));
  EXPECT_EQ(names("anchors"), (std::vector<std::string>{"000000000001", "000000000001.record"}));
  EXPECT_EQ(names("patches").size(), 3u);
  EXPECT_FALSE(exists(host.files, kState / "versions"));
  EXPECT_FALSE(exists(host.files, kState / "undo"));
  EXPECT_TRUE(journals().empty());
  EXPECT_EQ(names("records").size(), 4u) << "of version 4 and three patches";
  host.cut_power();
  ASSERT_NO_FATAL_FAILURE(start_with(4));
  EXPECT_TRUE(host.store->find(Version{4})->durable);
  receive(patch_to(5));
  expect_current(5);
}

TEST_F(StoreLogSingleCopyTest, TheJournalStaysUntilTheLogHoldsTheStep) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  ASSERT_TRUE(host.arrive(patch_to(3)).has_value());
  bool seen = false;
  std::optional<Result<StoredVersion>> installed;
  host.store->finish(patch_to(3).manifest.id(), [&](auto stored) {
    installed = std::move(stored);
    seen = journals() == std::vector<std::string>{kStep};
  });
  ASSERT_TRUE(host.clock->run_until([&] { return installed.has_value(); }));
  ASSERT_TRUE(installed->has_value()) << installed->error().message();
  EXPECT_FALSE((*installed)->durable);
  EXPECT_TRUE(seen);
  ASSERT_TRUE(host.await_durable(Version{3}).has_value());
  EXPECT_TRUE(journals().empty());
}

TEST_F(StoreLogSingleCopyTest, AStepWaitsForTheAnchorThatIsBeingWritten) {
  host.store_options.log.patches_max = 1;
  host.store_options.anchor_disk_share = 0.0001;  // else too soon for anybody to wait
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  ASSERT_TRUE(host.clock->run_until([&] { return names("anchors").back() == "000000000002.tmp"; }));
  std::vector<bool> anchored;  // when readers were told to let go, and when it was done
  host.store->on_pending_in_place_update(
      [&] { anchored.push_back(exists(host.files, kState / "anchors" / "000000000002")); });
  receive(patch_to(3));
  EXPECT_EQ(anchored, (std::vector<bool>{true, true})) << "it goes first, and nobody lets go for it";
  expect_current(3);
  ASSERT_TRUE(host.clock->run_until([&] { return names("anchors").front() == "000000000003"; }));
}

TEST_F(StoreLogSingleCopyTest, AStepThatWaitsTooLongSaysForWhatAndTheOnlyCopyStays) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(1));
  // A full disk takes neither the record of the patch nor an anchor: version 2 is in use, and not durable.
  ASSERT_TRUE(host.arrive(patch_to(2)).has_value());
  ASSERT_TRUE(host.finish(patch_to(2)).has_value());
  host.files.set_faults({.no_space = 1});
  host.pass(std::chrono::seconds(1));
  EXPECT_FALSE(host.store->find(Version{2})->durable);
  host.files.set_faults({});
  ASSERT_TRUE(host.arrive(patch_to(3)).has_value());
  host.files.set_faults({.no_space = 1});
  EXPECT_THAT(host.finish(patch_to(3)), FailsWith(Errc::kTimedOut, "it is not on the disk yet"));
  expect_current(2);
  host.files.set_faults({});
  ASSERT_TRUE(host.await_durable(Version{2}).has_value());
  receive(patch_to(3));
  expect_current(3);
}

TEST_F(StoreLogSingleCopyTest, AJournalThatFindsNoRoomLeavesTheOnlyCopy) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  ASSERT_TRUE(host.arrive(patch_to(3)).has_value());
  host.files.set_capacity(host.files.used_bytes());
  EXPECT_THAT(host.finish(patch_to(3)), FailsWith(Errc::kNoSpace));
  expect_current(2);
  EXPECT_TRUE(journals().empty());
  host.files.set_capacity(SimFileSystem::kUnlimited);
  receive(patch_to(3));
  expect_current(3);
}

TEST_F(StoreLogSingleCopyTest, AVersionThatComesWholeIsRefusedWhereTwoDoNotFit) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> asked;
  bool fits = false;
  host.store_options.check_room = [&](std::uint64_t bytes, std::uint32_t copies) -> Status {
    asked.emplace_back(bytes, copies);
    return fits ? Status() : fail(Errc::kNoSpace, Op::kWrite, "no room beside it");
  };
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  EXPECT_TRUE(asked.empty()) << "the first one is alone, and a patch changes the only copy";
  for (const Publication& whole : {snapshot(3), packed_payload(snapshot(3), 8192)}) {
    EXPECT_THAT(host.receive(whole), FailsWith(Errc::kNoSpace));
    expect_current(2);
  }
  EXPECT_EQ(asked, (std::vector<std::pair<std::uint64_t, std::uint32_t>>(2, {snapshot(3).stream.size(), 2})));
  fits = true;
  receive(snapshot(3));
  expect_current(3);
  EXPECT_EQ(host.store->versions().size(), 1u);
}

TEST_F(StoreLogSingleCopyTest, WhatRotsInTheMiddleOfAStepIsMadeAnewFromTheLog) {
  std::uint64_t rotten = 0;
  for (std::uint64_t change = 1;; ++change) {
    SCOPED_TRACE(testing::Message() << "change " << change);
    StoreHost dying(1, {.has_memory = true});
    dying.store_options = host.store_options;
    ASSERT_TRUE(dying.start_with_first().has_value());
    dying.files.kill_before_change(dying.files.changes() + change);
    static_cast<void>(dying.receive(patch_to(2)));
    if (!dying.files.killed()) break;
    dying.end_process();
    dying.files.restart();
    const std::filesystem::path changing = kVersionsInMemory / "incoming" / "000000000002";
    if (!exists(dying.files, changing)) continue;
    ++rotten;
    dying.files.flip_bit(changing / "d/b", 100, 3);
    ASSERT_TRUE(dying.start()) << dying.open_error->message();
    ASSERT_EQ(dying.store->current(), Version{1});
    ASSERT_TRUE(dying.holds(kState / "current", snapshot(1)));
  }
  EXPECT_GT(rotten, 3u);
}

TEST_F(StoreLogSingleCopyTest, TheOnlyCopyMovesToMemoryAndBack) {
  use_memory(false);
  ASSERT_THAT(host.start_with_first(), Succeeds());
  receive(patch_to(2));
  use_memory(true);
  ASSERT_NO_FATAL_FAILURE(start_with(2));
  EXPECT_EQ(host.store->find(Version{2})->path, only_copy(2));
  receive(patch_to(3));
  host.end_process();
  use_memory(false);
  ASSERT_NO_FATAL_FAILURE(start_with(3));
  receive(patch_to(4));
  host.cut_power();
  ASSERT_NO_FATAL_FAILURE(start_with(4));
}

// Whatever the step was at: what it leaves on the disk is settled there before it is moved.
TEST_F(StoreLogSingleCopyTest, TheOnlyCopyMovesAfterAKillBeforeAnyChange) {
  for (const bool from_memory : {false, true}) {
    for (std::uint64_t change = 1;; ++change) {
      SCOPED_TRACE(testing::Message() << (from_memory ? "from memory, change " : "to memory, change ") << change);
      StoreHost moving(1, {.has_memory = true});
      moving.store_options.single_copy = true;
      const auto use = [&](bool memory) {
        moving.store_options.place.memory_directory = memory ? kVersionsInMemory : std::filesystem::path();
      };
      use(from_memory);
      ASSERT_TRUE(moving.start_with_first().has_value());
      moving.files.kill_before_change(moving.files.changes() + change);
      static_cast<void>(moving.receive_durably(patch_to(2)));
      const bool ended = !moving.files.killed();
      if (moving.store && !ended) moving.note_durable();
      moving.end_process();
      moving.files.restart();
      use(!from_memory);
      ASSERT_TRUE(moving.start()) << moving.open_error->message();
      ASSERT_GE(moving.store->current(), moving.durable);
      ASSERT_TRUE(moving.holds(kState / "current", snapshot(moving.store->current().value)));
      ASSERT_THAT(moving.receive(snapshot(3)), Succeeds());
      ASSERT_TRUE(moving.holds(kState / "current", snapshot(3)));
      if (ended) break;
    }
  }
}

// Neither a log that cannot be written nor a journal that cannot be removed costs a version.
TEST_F(StoreLogSingleCopyTest, AFailedCallAfterAStepCostsNothing) {
  for (std::uint64_t call = 1; call < 100; ++call) {
    SCOPED_TRACE(testing::Message() << "call " << call);
    StoreHost failing(call, {.has_memory = true});
    failing.store_options = host.store_options;
    ASSERT_TRUE(failing.start_with_first().has_value());
    ASSERT_TRUE(failing.receive(patch_to(2)).has_value());
    failing.files.set_faults({.lossy_sync = 1});
    failing.files.fail_call(call, call % 2 == 0 ? EIO : ENOSPC);
    ASSERT_TRUE(failing.await_durable(Version{2}).has_value());
    failing.files.set_faults({});
    failing.files.fail_no_call();
    ASSERT_TRUE(failing.receive_durably(patch_to(3)).has_value());
    ASSERT_TRUE(failing.holds(kState / "current", snapshot(3)));
    failing.end_process();
    call % 3 == 0 ? failing.files.kill() : failing.files.power_cut();
    failing.files.restart();
    ASSERT_TRUE(failing.start()) << failing.open_error->message();
    ASSERT_EQ(failing.store->current(), Version{3});
    ASSERT_TRUE(failing.holds(kState / "current", snapshot(3)));
  }
}

}  // namespace
}  // namespace weightcast::sim
