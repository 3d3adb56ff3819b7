// Versions in memory: what a kill leaves of them, what the disk keeps, and what a change of place does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>

#include "sim/host/run_version.h"
#include "tests/result_matchers.h"
#include "tests/sim/store_host.h"

namespace weightcast::sim {
namespace {

struct StoreMemoryTest : testing::Test {
  StoreMemoryTest() { use_memory(true); }

  void use_memory(bool memory) {
    host.store_options.place.memory_directory = memory ? kVersionsInMemory : std::filesystem::path();
  }
  void keep_every(std::uint32_t versions) { host.store_options.keep_durable_every = versions; }
  void receive(const Publication& p) { ASSERT_THAT(host.receive_durably(p), Succeeds()); }
  /// Version 1, and patches up to `version`.
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
    return host.files.list(kState / folder).value_or(std::vector<std::string>{});
  }
  /// What the disk has, and nothing else.
  void expect_kept(const std::vector<std::string>& versions) {
    EXPECT_EQ(names("versions"), versions);
    EXPECT_EQ(names("records"), versions);
    for (const char* folder : {"patches", "incoming", "spare", "trash"}) EXPECT_TRUE(names(folder).empty()) << folder;
  }

  StoreHost host{1, {.has_memory = true}};
};

TEST_F(StoreMemoryTest, AKillLeavesWhatIsInMemory) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(3));
  host.die();
  ASSERT_NO_FATAL_FAILURE(start_with(3));
  EXPECT_GE(host.store->versions().size(), 2u);
}

TEST_F(StoreMemoryTest, AWorkersDiskHasNothingAndAPowerCutLeavesNone) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(4));
  EXPECT_FALSE(exists(host.files, kState / "versions"));
  EXPECT_FALSE(exists(host.files, kState / "records"));
  EXPECT_FALSE(exists(host.files, kState / "patches"));
  EXPECT_FALSE(host.store->find(Version{4})->durable);
  host.cut_power();
  ASSERT_NO_FATAL_FAILURE(start_with(0));
  receive(snapshot(5));
  expect_current(5);
}

TEST_F(StoreMemoryTest, AnOriginsDiskHasOneWholeVersionFromTimeToTime) {
  keep_every(3);
  ASSERT_NO_FATAL_FAILURE(receive_up_to(3));
  expect_kept({"000000000001"});
  receive(patch_to(4));
  expect_kept({"000000000004"});
  EXPECT_TRUE(host.store->find(Version{4})->durable);
  receive(patch_to(5));
  EXPECT_FALSE(host.store->find(Version{5})->durable);
  host.die();
  ASSERT_NO_FATAL_FAILURE(start_with(5));
  EXPECT_TRUE(host.store->find(Version{4})->durable) << "the disk has it still";
  host.cut_power();
  ASSERT_NO_FATAL_FAILURE(start_with(4));
  expect_kept({"000000000004"});
  receive(patch_to(5));
  expect_current(5);
}

TEST_F(StoreMemoryTest, WhatIsKeptRottenIsNoVersion) {
  keep_every(3);
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  host.end_process();
  host.files.flip_bit(kState / "versions" / "000000000001" / "d/b", 100, 3);
  host.cut_power();
  ASSERT_NO_FATAL_FAILURE(start_with(0));
  expect_kept({});
  receive(snapshot(6));
  expect_kept({"000000000006"});
}

TEST_F(StoreMemoryTest, WhatRotsInMemoryIsNotKept) {
  keep_every(2);
  host.store_options.scrub_share = 0;
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  ASSERT_THAT(host.receive(patch_to(3)), Succeeds());
  host.files.flip_bit(kVersionsInMemory / "versions" / "000000000003" / "d/b", 100, 3);
  std::optional<Version> lost;
  host.store->on_lost([&](Version version, const Error&) { lost = version; });
  ASSERT_TRUE(host.clock->run_until([&] { return lost.has_value(); }));
  EXPECT_EQ(lost, Version{3});
  expect_kept({"000000000001"});
}

TEST_F(StoreMemoryTest, AStartThatFindsRotInMemoryLeavesWhatTheDiskHas) {
  keep_every(3);
  ASSERT_NO_FATAL_FAILURE(receive_up_to(1));
  receive(snapshot(4));
  expect_kept({"000000000004"});
  receive(patch_to(5));
  host.files.flip_bit(kVersionsInMemory / "versions" / "000000000004" / "d/b", 100, 3);
  host.die();
  ASSERT_NO_FATAL_FAILURE(start_with(5));
  host.pass(std::chrono::seconds(5));
  expect_kept({"000000000004"});
}

TEST(StoreMemory, ADiskThatFailsNowAndThenKeepsAVersionAllTheSame) {
  // The seed decides what a power cut leaves of names that were not synced.
  for (std::uint64_t run = 0; run < 80 * 3; ++run) {
    const std::uint64_t seed = run / 80, call = run % 80 + 1;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", call " << call << " fails");
    StoreHost host{seed, {.has_memory = true}};
    host.store_options.place.memory_directory = kVersionsInMemory;
    host.store_options.keep_durable_every = 1;
    ASSERT_TRUE(host.start_with_first().has_value());
    ASSERT_TRUE(host.receive(snapshot(2)).has_value());
    host.files.fail_call(call, EIO);
    host.pass(std::chrono::seconds(30));
    host.files.fail_no_call();
    ASSERT_TRUE(host.store->find(Version{2})->durable);
    host.cut_power();
    ASSERT_TRUE(host.start());
    ASSERT_EQ(host.store->current(), Version{2});
  }
}

TEST_F(StoreMemoryTest, TheFirstVersionOfAnEmptyStoreDecidesWhereVersionsLie) {
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
  host.die();
  // A store that is not empty is not asked.
  use_memory(true);
  ASSERT_NO_FATAL_FAILURE(start_with(3));
  EXPECT_EQ(host.store->place()->memory_directory, kVersionsInMemory);
  EXPECT_EQ(asked.size(), 1u);
}

TEST_F(StoreMemoryTest, AnImportDecidesToo) {
  use_memory(false);
  host.store_options.choose_place = [](std::uint64_t) { return StorePlace{{}, "it does not fit"}; };
  ASSERT_TRUE(host.start()) << host.open_error->message();
  ASSERT_THAT(host.import(snapshot(1)), Succeeds());
  EXPECT_EQ(host.store->place()->why, "it does not fit");
  EXPECT_EQ(host.store->find(Version{1})->path.parent_path(), kState / "versions");
}

TEST_F(StoreMemoryTest, VersionsThatFindNoPlaceInMemoryLieOnTheDisk) {
  use_memory(false);
  host.store_options.choose_place = [](std::uint64_t) { return StorePlace{kState / "lock" / "memory", "it fits"}; };
  ASSERT_TRUE(host.start()) << host.open_error->message();
  receive(snapshot(1));
  EXPECT_EQ(host.store->place()->memory_directory, "");
  EXPECT_NE(host.store->place()->why, "it fits");
  EXPECT_EQ(host.store->find(Version{1})->path.parent_path(), kState / "versions");
  ASSERT_NO_FATAL_FAILURE(start_with(1));
}

TEST_F(StoreMemoryTest, TheNewestVersionOnTheDiskIsCopiedToMemoryAndStaysThereForAnOrigin) {
  for (const std::uint32_t every : {0U, 3U}) {
    SCOPED_TRACE(every);
    StoreHost moving(1, {.has_memory = true});
    moving.store_options.keep_durable_every = every;
    ASSERT_THAT(moving.start_with_first(), Succeeds());
    ASSERT_THAT(moving.receive_durably(patch_to(2)), Succeeds());
    moving.store_options.place.memory_directory = kVersionsInMemory;
    ASSERT_TRUE(moving.start()) << moving.open_error->message();
    EXPECT_EQ(moving.store->current(), Version{2});
    EXPECT_EQ(moving.store->find(Version{2})->path.parent_path(), kVersionsInMemory / "versions");
    EXPECT_EQ(moving.files.list(kState / "versions")->size(), every > 0 ? 1U : 0U);
    ASSERT_THAT(moving.receive_durably(patch_to(3)), Succeeds());
    moving.store_options.place.memory_directory = std::filesystem::path();
    ASSERT_TRUE(moving.start()) << moving.open_error->message();
    EXPECT_EQ(moving.store->current(), every > 0 ? Version{2} : kNoVersion) << "what lies whole on the disk";
  }
}

TEST_F(StoreMemoryTest, OfTheRunBeforeTheVersionInUseIsCopiedToMemory) {
  use_memory(false);
  ASSERT_TRUE(host.start());
  receive(snapshot(1));
  receive(snapshot(2));
  ASSERT_TRUE(host.follow_run(0xb, true).has_value());
  use_memory(true);
  ASSERT_TRUE(host.start()) << host.open_error->message();
  EXPECT_EQ(host.store->current(), kNoVersion);
  EXPECT_EQ(in_use(*host.store), RunVersion(1, Version{2}));
  EXPECT_TRUE(host.holds(kState / "current", snapshot(2)));
  host.die();
  ASSERT_TRUE(host.start()) << host.open_error->message();
  EXPECT_EQ(in_use(*host.store), RunVersion(1, Version{2}));
  receive(snapshot(3));
  EXPECT_EQ(in_use(*host.store), RunVersion(2, Version{3}));
  EXPECT_EQ(host.files.list(kVersionsInMemory / "versions")->size(), 1u) << "of the run before none is left";
}

// As the release before left it: an anchor and the records of all payloads on the disk, and versions in memory.
TEST_F(StoreMemoryTest, TheFormOfTheReleaseBeforeIsTakenWithItsWholeVersions) {
  for (const bool power_cut : {false, true}) {
    for (const bool to_disk : {false, true}) {
      SCOPED_TRACE(testing::Message() << "power cut " << power_cut << ", to the disk " << to_disk);
      StoreHost before(1, {.has_memory = true});
      before.store_options.place.memory_directory = kVersionsInMemory;
      before.store_options.keep_durable_every = 3;
      ASSERT_TRUE(before.start_with_first().has_value());
      ASSERT_TRUE(before.receive_durably(patch_to(2)).has_value());
      before.end_process();
      const StoreLayout disk(before.files, kState), memory(before.files, kState, kVersionsInMemory);
      ASSERT_TRUE(make_directories(before.files, kState / "anchors").has_value());
      ASSERT_TRUE(make_directories(before.files, kVersionsInMemory / "undo").has_value());
      ASSERT_TRUE(before.files.rename(disk.complete(Version{1}), kState / "anchors/000000000001").has_value());
      ASSERT_TRUE(before.files.rename(disk.record(Version{1}), kState / "anchors/000000000001.record").has_value());
      for (const PayloadId payload : {PayloadId(Version{1}), PayloadId(Version{2})}) {
        const Result<VersionRecord> record = read_record(before.files, memory.record(payload));
        if (!record.has_value()) continue;
        ASSERT_TRUE(rewrite_record(before.files, disk.record(payload), *record).has_value());
        ASSERT_TRUE(remove_if_there(before.files, memory.record(payload)).has_value());
      }
      for (const auto& folder : {kState, kState / "anchors", kState / "records"}) {
        ASSERT_TRUE(sync_directory(before.files, folder).has_value());
      }
      if (power_cut) before.files.power_cut();
      if (to_disk) before.store_options.place.memory_directory = std::filesystem::path();
      ASSERT_TRUE(before.start()) << before.open_error->message();
      EXPECT_EQ(before.store->current(), power_cut || to_disk ? Version{1} : Version{2});
      EXPECT_TRUE(before.holds(kState / "current", snapshot(before.store->current().value)));
      EXPECT_FALSE(exists(before.files, kState / "anchors"));
      EXPECT_FALSE(exists(before.files, kVersionsInMemory / "undo") && !to_disk);
      EXPECT_EQ(*before.files.list(kState / "versions"), std::vector<std::string>{"000000000001"});
      EXPECT_EQ(*before.files.list(kState / "records"), std::vector<std::string>{"000000000001"});
      ASSERT_THAT(before.receive_durably(snapshot(6)), Succeeds());
    }
  }
}

/// The only copy lies in memory, and changes there.
struct StoreMemorySingleCopyTest : StoreMemoryTest {
  StoreMemorySingleCopyTest() { host.store_options.single_copy = true; }
};

TEST_F(StoreMemorySingleCopyTest, AStepWritesNothingToTheDisk) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(4));
  EXPECT_EQ(host.store->versions().size(), 1u);
  EXPECT_EQ(host.store->find(Version{4})->path, kVersionsInMemory / "versions" / "000000000004");
  expect_kept({});
  host.die();
  ASSERT_NO_FATAL_FAILURE(start_with(4));
  receive(patch_to(5));
  expect_current(5);
}

TEST_F(StoreMemorySingleCopyTest, AVersionThatComesWholeIsRefusedWhereTwoDoNotFit) {
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

// Whatever the step was at: the old version, the new one or none.
TEST(StoreSingleCopy, AFailedCallInAStepLeavesAWholeVersionOrNone) {
  for (const bool memory : {false, true}) {
    std::uint64_t lost = 0;
    for (std::uint64_t call = 1; call < 80; ++call) {
      SCOPED_TRACE(testing::Message() << (memory ? "in memory, call " : "on the disk, call ") << call);
      StoreHost failing(call, {.has_memory = true});
      failing.store_options.single_copy = true;
      if (memory) failing.store_options.place.memory_directory = kVersionsInMemory;
      ASSERT_TRUE(failing.start_with_first().has_value());
      ASSERT_TRUE(failing.arrive(patch_to(2)).has_value());
      failing.files.fail_call(call, call % 2 == 0 ? EIO : ENOSPC);
      static_cast<void>(failing.finish(patch_to(2)));
      failing.pass(std::chrono::seconds(15));
      failing.files.fail_no_call();
      const Version current = failing.store->current();
      if (current == kNoVersion) ++lost;
      ASSERT_EQ(exists(failing.files, kState / "current"), current != kNoVersion);
      if (current != kNoVersion) {
        ASSERT_TRUE(failing.holds(kState / "current", snapshot(current.value)));
      }
      failing.die();
      ASSERT_TRUE(failing.start()) << failing.open_error->message();
      ASSERT_EQ(failing.store->current(), current);
      ASSERT_THAT(failing.receive(snapshot(3)), Succeeds());
      ASSERT_TRUE(failing.holds(kState / "current", snapshot(3)));
    }
    EXPECT_GT(lost, 0u) << "some call was in the middle";
  }
}

}  // namespace
}  // namespace weightcast::sim
