#include "sim/host/sim_file_system.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace weightcast::sim {
namespace {

constexpr OpenOptions kNewFile{.write = true, .create = Create::kNew};

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

void put(FileSystem& files, const std::filesystem::path& path, std::string_view text, bool synced) {
  const auto file = files.open(path, {.write = true, .create = Create::kEmpty});
  ASSERT_TRUE(file.has_value()) << file.error().message();
  ASSERT_TRUE(write_fully(**file, 0, bytes_of(text), "file").has_value());
  if (synced) {
    ASSERT_TRUE((*file)->sync_data().has_value());
  }
}

std::string content(FileSystem& files, const std::filesystem::path& path) {
  return read_file(files, path, kMiB).value_or("(none)");
}

TEST(SimFileSystem, SyncedBytesUnderASyncedNameSurviveAnyPowerCut) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimFileSystem files(seed);
    ASSERT_TRUE(files.make_directory("/d").has_value());
    ASSERT_TRUE(sync_directory(files, "/").has_value());
    put(files, "/d/a", std::string(10'000, 'x'), true);
    ASSERT_TRUE(sync_directory(files, "/d").has_value());
    files.power_cut();
    EXPECT_EQ(content(files, "/d/a"), std::string(10'000, 'x'));
  }
}

TEST(SimFileSystem, UnsyncedBytesAreLostKeptAndTorn) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SimFileSystem files(seed);
    put(files, "/a", std::string(8192, 'o'), true);
    ASSERT_TRUE(sync_directory(files, "/").has_value());
    const auto file = files.open("/a", {.write = true});
    ASSERT_TRUE((*file)->write_at(0, bytes_of(std::string(8192, 'n'))).has_value());
    files.power_cut();
    const std::string after = content(files, "/a");
    ASSERT_EQ(after.size(), 8192u);
    for (std::size_t at = 0; at < after.size(); at += 512) {
      EXPECT_EQ(after.substr(at, 512), std::string(512, after[at])) << "a sector is torn";
    }
    seen.insert(after);
  }
  EXPECT_TRUE(seen.contains(std::string(8192, 'o')));
  EXPECT_TRUE(seen.contains(std::string(8192, 'n')));
  EXPECT_GT(seen.size(), 10u);
}

TEST(SimFileSystem, UnsyncedNamesAreLostOrKeptInAnyCombinationOfIndependentOnes) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SimFileSystem files(seed);
    for (const char* name : {"/a", "/b"}) put(files, name, name, true);
    files.power_cut();
    std::string kept;
    const std::vector<std::string> names = *files.list("/");
    for (const std::string& name : names) kept += name;
    seen.insert(kept);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"", "a", "b", "ab"}));
}

TEST(SimFileSystem, ARenameIsWholeOrNotAtAll) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimFileSystem files(seed);
    for (const char* folder : {"/d", "/e"}) ASSERT_TRUE(files.make_directory(folder).has_value());
    put(files, "/d/a", "new", true);
    put(files, "/e/a", "old", true);
    for (const char* folder : {"/d", "/e", "/"}) ASSERT_TRUE(sync_directory(files, folder).has_value());
    ASSERT_TRUE(files.rename("/d/a", "/e/a").has_value());
    files.power_cut();
    const bool moved = !exists(files, "/d/a");
    EXPECT_EQ(content(files, "/e/a"), moved ? "new" : "old");
  }
}

TEST(SimFileSystem, WhatChangedOneNameStaysInOrder) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SimFileSystem files(seed);
    put(files, "/a", "first", true);
    ASSERT_TRUE(sync_directory(files, "/").has_value());
    ASSERT_TRUE(files.rename("/a", "/b").has_value());
    put(files, "/a", "second", true);
    files.power_cut();
    // A new "a" without the rename would have lost the first file.
    EXPECT_TRUE(content(files, "/a") == "first" || content(files, "/b") == "first");
  }
}

TEST(SimFileSystem, AKillLosesNothingThatWasWritten) {
  SimFileSystem files(1);
  put(files, "/a", "bytes", false);
  auto file = *files.open("/a", {.write = true});
  ASSERT_TRUE(file->lock().has_value());
  files.kill();
  EXPECT_FALSE(file->write_at(0, bytes_of("dead")).has_value());
  EXPECT_FALSE(files.open("/b", kNewFile).has_value());
  files.restart();
  EXPECT_FALSE(file->write_at(0, bytes_of("dead")).has_value());
  EXPECT_EQ(content(files, "/a"), "bytes");
  EXPECT_FALSE(exists(files, "/b"));
  EXPECT_TRUE((*files.open("/a", {.write = true}))->lock().has_value());
}

TEST(SimFileSystem, AnyCallFailsAsTheScriptSays) {
  SimFileSystem files(1);
  files.fail_call(2, EIO);
  EXPECT_TRUE(files.make_directory("/d").has_value());
  EXPECT_EQ(files.make_directory("/e").error().code, Errc::kIo);
  EXPECT_TRUE(files.make_directory("/e").has_value());
}

TEST(SimFileSystem, FillsUpAndKeepsWhatWasSetAside) {
  SimFileSystem files(1, {.capacity_bytes = 5 * 4096});
  const auto reserved = *files.open("/reserved", kNewFile);
  ASSERT_TRUE(reserved->allocate(3 * 4096).has_value());
  const auto other = *files.open("/other", kNewFile);
  EXPECT_EQ(*other->write_at(0, bytes_of(std::string(20'000, 'x'))), 8192u);
  EXPECT_EQ(other->write_at(8192, bytes_of("x")).error().code, Errc::kNoSpace);
  EXPECT_TRUE(write_fully(*reserved, 0, bytes_of(std::string(3 * 4096, 'r')), "reserved").has_value());
  EXPECT_EQ(*files.free_bytes("/"), 0u);
  ASSERT_TRUE(files.remove("/other").has_value());
  EXPECT_EQ(*files.free_bytes("/"), 0u);  // still open
}

TEST(SimFileSystem, BehavesLikePosixAroundRemovedDirectories) {
  SimFileSystem files(1);
  ASSERT_TRUE(files.make_directory("/d").has_value());
  const auto directory = *files.open_directory("/d");
  const auto file = *directory->open("a", kNewFile);
  EXPECT_FALSE(files.remove_directory("/d").has_value());
  ASSERT_TRUE(files.rename("/d", "/e").has_value());
  EXPECT_TRUE(directory->info("a").has_value());
  ASSERT_TRUE(remove_all(files, "/e").has_value());
  EXPECT_TRUE(file->write_at(0, bytes_of("still open")).has_value());
  EXPECT_EQ(directory->open("b", kNewFile).error().code, Errc::kNotFound);
}

TEST(SimFileSystem, TellsWhetherSomebodyElseHasAFile) {
  SimFileSystem files(1);
  put(files, "/a", "x", false);
  const auto file = *files.open("/a", {.write = true});
  EXPECT_TRUE(file->check_unshared().has_value());
  {
    const auto reader = files.open_elsewhere("/a");
    EXPECT_EQ(file->check_unshared().error().code, Errc::kBusy);
    EXPECT_NE(files.users_of({"/a"}), "");
  }
  const auto mapping = *file->map();
  EXPECT_EQ(file->check_unshared().error().code, Errc::kBusy);
}

TEST(SimFileSystem, FollowsLinks) {
  SimFileSystem files(1);
  ASSERT_TRUE(make_directories(files, "/s/versions/7").has_value());
  put(files, "/s/versions/7/a", "seven", false);
  ASSERT_TRUE(files.make_link("versions/7", "/s/current").has_value());
  EXPECT_EQ(content(files, "/s/current/a"), "seven");
  EXPECT_EQ(*files.read_link("/s/current"), "versions/7");
  EXPECT_TRUE(files.link_info("/s/current")->is_link());
  EXPECT_TRUE(files.info("/s/current")->is_directory());
}

TEST(SimFileSystem, HolesAreTold) {
  SimFileSystem files(1);
  const auto file = *files.open("/a", kNewFile);
  ASSERT_TRUE(file->allocate(5 * 4096).has_value());
  EXPECT_EQ(*file->next_data(0), std::nullopt);
  ASSERT_TRUE(file->write_at(2 * 4096 + 100, bytes_of("x")).has_value());
  EXPECT_EQ(*file->next_data(0), 2 * 4096);
  EXPECT_EQ(*file->next_data(3 * 4096), std::nullopt);
}

TEST(SimFileSystem, TheSameSeedMakesTheSameCut) {
  const auto run = [](std::uint64_t seed) {
    SimFileSystem files(seed);
    for (const char* name : {"/a", "/b", "/c", "/d"}) put(files, name, std::string(20'000, name[1]), false);
    files.power_cut();
    std::string all;
    const std::vector<std::string> names = *files.list("/");
    for (const std::string& name : names) all += name + content(files, "/" + name);
    return all;
  };
  EXPECT_EQ(run(7), run(7));
}

}  // namespace
}  // namespace weightcast::sim
