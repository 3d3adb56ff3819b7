// Versions in memory: what the log on the disk makes of them after a power cut, a change of place, and damage.
#include <gtest/gtest.h>

#include "tests/sim/store_host.h"

namespace weightcast::sim {
namespace {

struct StoreLogTest : testing::Test {
  StoreLogTest() { use_memory(true); }

  void use_memory(bool memory) {
    host.store_options.place.memory_directory = memory ? kVersionsInMemory : std::filesystem::path();
  }
  void receive(const Publication& p) {
    const Status received = host.receive(p);
    ASSERT_TRUE(received.has_value()) << received.error().message();
    ASSERT_TRUE(host.await_durable(p.manifest.version).has_value());
  }
  /// Version 1, which is the anchor, and patches up to `version`.
  void receive_up_to(std::uint64_t version) {
    ASSERT_TRUE(host.start()) << host.open_error->message();
    host.store->retain({});
    receive(snapshot(1));
    for (std::uint64_t v = 2; v <= version; ++v) receive(patch_to(v));
  }
  void cut_power() {
    host.end_process();
    host.files.power_cut();
  }
  void expect_current(std::uint64_t version) {
    ASSERT_TRUE(host.store) << host.open_error->message();
    EXPECT_EQ(host.store->current(), Version{version});
    EXPECT_TRUE(version == 0 || host.holds(kState / "current", snapshot(version)));
  }
  std::vector<std::string> names(const char* folder) {
    return host.files.list(kState / folder).value_or(std::vector<std::string>{"?"});
  }

  StoreHost host{1, {.has_memory = true}};
};

TEST_F(StoreLogTest, APowerCutLeavesTheNewestDurableVersion) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(4));
  EXPECT_FALSE(exists(host.files, kState / "versions")) << "on the disk";
  cut_power();
  ASSERT_TRUE(host.start()) << host.open_error->message();
  expect_current(4);
  EXPECT_TRUE(host.store->find(Version{4})->durable);
  receive(patch_to(5));
  expect_current(5);
}

TEST_F(StoreLogTest, AKillLeavesWhatIsInMemory) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(3));
  host.end_process();
  host.files.kill();
  host.files.restart();
  ASSERT_TRUE(host.start()) << host.open_error->message();
  expect_current(3);
  EXPECT_GE(host.store->versions().size(), 2u) << "nothing is made anew";
}

TEST_F(StoreLogTest, WritesThePatchesAndAnAnchorFromTimeToTime) {
  host.store_options.log.patches_max = 3;
  ASSERT_NO_FATAL_FAILURE(receive_up_to(3));
  EXPECT_EQ(names("anchors"), (std::vector<std::string>{"000000000001", "000000000001.record"}));
  EXPECT_EQ(names("patches").size(), 2u) << "those that the log needs";
  receive(patch_to(4));
  ASSERT_TRUE(host.loop->run_until([&] { return names("anchors").front() == "000000000004"; }));
  ASSERT_TRUE(host.loop->run_until([&] { return names("patches").empty(); }));
  EXPECT_EQ(names("anchors").size(), 2u);
}

TEST_F(StoreLogTest, AVersionThatCameWholeBecomesAnAnchor) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  receive(snapshot(5));
  ASSERT_TRUE(host.loop->run_until([&] { return names("anchors").size() == 2; }));
  EXPECT_EQ(names("anchors").front(), "000000000005");
  cut_power();
  ASSERT_TRUE(host.start()) << host.open_error->message();
  expect_current(5);
}

TEST_F(StoreLogTest, APackedPayloadIsNotKeptForTheLog) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(1));
  const Status received = host.receive(packed_payload(snapshot(2), 8192));
  ASSERT_TRUE(received.has_value()) << received.error().message();
  ASSERT_TRUE(host.loop->run_until([&] { return names("patches").empty(); }));
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
  cut_power();
  // A store that is not empty is not asked.
  use_memory(true);
  ASSERT_TRUE(host.start()) << host.open_error->message();
  expect_current(3);
  EXPECT_EQ(host.store->place()->memory_directory, kVersionsInMemory);
  EXPECT_EQ(asked.size(), 1u);
}

TEST_F(StoreLogTest, AnImportDecidesToo) {
  use_memory(false);
  host.store_options.choose_place = [](std::uint64_t) { return StorePlace{{}, "it does not fit"}; };
  ASSERT_TRUE(host.start()) << host.open_error->message();
  const Status imported = host.import(snapshot(1));
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
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
  ASSERT_TRUE(host.start()) << host.open_error->message();
  expect_current(1);
}

TEST_F(StoreLogTest, VersionsMoveToMemoryAndBack) {
  use_memory(false);
  ASSERT_TRUE(host.start()) << host.open_error->message();
  host.store->retain({});
  receive(snapshot(1));
  receive(patch_to(2));
  use_memory(true);
  ASSERT_TRUE(host.start()) << host.open_error->message();
  expect_current(2);
  EXPECT_EQ(host.store->find(Version{2})->path.parent_path(), kVersionsInMemory / "versions");
  EXPECT_EQ(names("versions").size(), 0u);
  receive(patch_to(3));
  host.end_process();
  use_memory(false);
  ASSERT_TRUE(host.start()) << host.open_error->message();
  expect_current(3);
  EXPECT_EQ(host.store->find(Version{3})->path.parent_path(), kState / "versions");
  ASSERT_TRUE(host.await_durable(Version{3}).has_value());
  ASSERT_TRUE(host.loop->run_until([&] { return names("anchors").empty(); }));
  cut_power();
  ASSERT_TRUE(host.start()) << host.open_error->message();
  expect_current(3);
}

TEST_F(StoreLogTest, TheLogEndsBeforeAPatchThatIsDamaged) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(4));
  host.end_process();
  host.files.flip_bit(kState / "patches" / "000000000003-000000000002" / kPatchFileName, 100, 3);
  cut_power();
  ASSERT_TRUE(host.start()) << host.open_error->message();
  expect_current(2);
  receive(snapshot(6));
  expect_current(6);
}

TEST_F(StoreLogTest, ADamagedAnchorIsNoVersion) {
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  host.end_process();
  host.files.flip_bit(kState / "anchors" / "000000000001" / "d/b", 100, 3);
  cut_power();
  ASSERT_TRUE(host.start()) << host.open_error->message();
  expect_current(0);
  receive(snapshot(6));
  cut_power();
  ASSERT_TRUE(host.start()) << host.open_error->message();
  expect_current(6);
}

TEST_F(StoreLogTest, WhatRotsInMemoryBecomesNoAnchor) {
  host.store_options.log.patches_max = 2;
  ASSERT_NO_FATAL_FAILURE(receive_up_to(2));
  const Status received = host.receive(patch_to(3));
  ASSERT_TRUE(received.has_value()) << received.error().message();
  host.files.flip_bit(kVersionsInMemory / "versions" / "000000000003" / "d/b", 100, 3);
  std::optional<Version> lost;
  host.store->on_lost([&](Version version, const Error&) { lost = version; });
  ASSERT_TRUE(host.loop->run_until([&] { return lost.has_value(); }));
  EXPECT_EQ(lost, Version{3});
  EXPECT_EQ(names("anchors").front(), "000000000001");
}

}  // namespace
}  // namespace weightcast::sim
