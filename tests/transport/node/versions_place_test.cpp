#include "transport/node/versions_place.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/files/posix_file_system.h"
#include "base/units.h"
#include "tests/patch/temp_dir.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr MemoryRoom kRoom{.directory_free = 32 * kGiB, .host_available = 32 * kGiB};

TEST(VersionsPlace, IsMemoryWhereAllCopiesFitWithRoomToSpare) {
  const PlaceChoice memory = choose_place(8 * kGiB, {3}, kRoom);
  EXPECT_TRUE(memory.in_memory);
  EXPECT_EQ(memory.why, "3 copies of 8.00 GiB take 26.40 GiB of 28.00 GiB");
  EXPECT_FALSE(choose_place(9 * kGiB, {3}, kRoom).in_memory) << "a tenth, and an eighth of the host's";
  EXPECT_FALSE(choose_place(8 * kGiB, {4}, kRoom).in_memory);
}

TEST(VersionsPlace, IsMemoryWhereTheSingleCopyAndAPatchFit) {
  MemoryRoom room = kRoom;
  room.allowed = 10 * kGiB;
  const PlaceChoice memory = choose_place(8 * kGiB, kSingleCopy, room);
  EXPECT_TRUE(memory.in_memory);
  EXPECT_EQ(memory.why, "one copy of 8.00 GiB and a step's patch take 9.68 GiB of 28.00 GiB");
  room.allowed = 9 * kGiB;
  const PlaceChoice disk = choose_place(8 * kGiB, kSingleCopy, room);
  EXPECT_FALSE(disk.in_memory);
  EXPECT_THAT(disk.why, HasSubstr("--memory-max allows 9.00 GiB"));
}

TEST(VersionsPlace, IsTheDiskWhereAnythingIsTooSmall) {
  MemoryRoom room = kRoom;
  room.directory_free = 64 * kMiB;
  const PlaceChoice plain_container = choose_place(8 * kGiB, {3}, room);
  EXPECT_FALSE(plain_container.in_memory);
  EXPECT_THAT(plain_container.why, HasSubstr("the file system in memory has 64.0 MiB"));
  room = kRoom;
  room.group_free = 16 * kGiB;
  EXPECT_THAT(choose_place(8 * kGiB, {3}, room).why, HasSubstr("the cgroup has 16.00 GiB"));
  room = kRoom;
  room.host_available = 16 * kGiB;
  EXPECT_THAT(choose_place(8 * kGiB, {3}, room).why, HasSubstr("the host has 14.00 GiB"));
}

TEST(VersionsPlace, IsTheDiskWhereMemoryIsNotTheNodesOwn) {
  MemoryRoom room = kRoom;
  room.allowed = 26 * kGiB;
  EXPECT_EQ(choose_place(8 * kGiB, {3}, room).why,
            "3 copies of 8.00 GiB take 26.40 GiB, and --memory-max allows 26.00 GiB");
  room.allowed = 27 * kGiB;
  EXPECT_TRUE(choose_place(8 * kGiB, {3}, room).in_memory);
  room.claimed = 2 * kGiB;
  EXPECT_THAT(choose_place(8 * kGiB, {3}, room).why,
              HasSubstr("beside the 2.00 GiB of other nodes the host has 26.00 GiB"));
  room.claimed = 100 * kGiB;
  EXPECT_THAT(choose_place(8 * kGiB, {3}, room).why, HasSubstr("the file system in memory has 0 B"));
  room = kRoom;
  room.directory_in_memory = false;
  EXPECT_THAT(choose_place(1, {3}, room).why, HasSubstr("in no file system in memory"));
  room = kRoom;
  room.emptied_at_logout = true;
  EXPECT_THAT(choose_place(1, {3}, room).why, HasSubstr("enable-linger"));
}

/// What a host's /proc and /sys say.
struct FakeHost {
  TempDir temp;

  void write(const std::filesystem::path& path, std::string_view text) const {
    const std::filesystem::path file = temp.file(path.native());
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] MemoryRoom room() const { return memory_room(TempDir::in_memory(), temp.file("none"), temp.path()); }
};

TEST(MemoryRoom, IsWhatTheHostAndEachCgroupAboveLeave) {
  const FakeHost host;
  EXPECT_FALSE(host.room().group_free.has_value());
  host.write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 64 kB\n");
  host.write("proc/self/cgroup", "0::/a/b\n");
  host.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  host.write("sys/fs/cgroup/a/b/memory.current", "100\n");
  EXPECT_EQ(host.room().host_available, 64 * kKiB);
  EXPECT_FALSE(host.room().group_free.has_value());
  host.write("sys/fs/cgroup/a/memory.max", "1000\n");
  host.write("sys/fs/cgroup/a/memory.current", "950\n");
  EXPECT_EQ(host.room().group_free, 50u);
  host.write("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_anon 7\nactive_file 100\ninactive_file 300\n");
  EXPECT_EQ(host.room().group_free, 450u) << "the page cache makes room";
}

TEST(MemoryRoom, IsNoneThatAnotherDeletesAtLogout) {
  constexpr uid_t kNobody = 65534;
  const FakeHost host;
  const auto is_emptied = [&](uid_t user, const char* directory = "/dev/shm/weights") {
    return is_emptied_at_logout(directory, host.temp.path(), user);
  };
  EXPECT_FALSE(is_emptied(kNobody)) << "without logind";
  std::filesystem::create_directories(host.temp.file("run/systemd/seats"));
  EXPECT_TRUE(is_emptied(kNobody));
  EXPECT_FALSE(is_emptied(0));
  EXPECT_FALSE(is_emptied(kNobody, "/mnt/memory"));
  host.write("var/lib/systemd/linger/nobody", "");
  EXPECT_FALSE(is_emptied(kNobody));
}

/// A node's state directory, and a file system in memory beside those of others.
struct PlaceOfANode : testing::Test {
  TempDir state;
  TempDir memory{TempDir::in_memory()};
  PosixFileSystem files;

  [[nodiscard]] VersionsPlace places(VersionsIn versions_in, std::optional<std::uint64_t> bytes_max = {}) {
    return {files, {versions_in, state.path(), memory.path(), {3}, bytes_max}};
  }
  [[nodiscard]] std::filesystem::path in_memory() const { return memory_directory_of(memory.path(), state.path()); }
};

TEST_F(PlaceOfANode, IsDecidedByTheFirstVersion) {
  ASSERT_EQ(places(VersionsIn::kAuto).at_start().value(), std::nullopt);
  EXPECT_EQ(places(VersionsIn::kDisk).at_start().value()->memory_directory, "");
  EXPECT_EQ(places(VersionsIn::kMemory).at_start().value()->memory_directory, in_memory());

  EXPECT_EQ(places(VersionsIn::kAuto).for_version(kMiB).memory_directory, in_memory());
  const StorePlace disk = places(VersionsIn::kAuto, kMiB).for_version(kMiB);
  EXPECT_EQ(disk.memory_directory, "");
  EXPECT_EQ(disk.why, "3 copies of 1.0 MiB take 3.3 MiB, and --memory-max allows 1.0 MiB");
  EXPECT_FALSE(std::filesystem::exists(in_memory())) << "nothing is left behind";
}

TEST_F(PlaceOfANode, IsTheDiskWhereASingleCopyWouldFitAndTheReasonSaysSo) {
  const auto worker = [&](CopiesKept kept, std::uint64_t bytes_max) {
    return VersionsPlace(files, {VersionsIn::kAuto, state.path(), memory.path(), kept, bytes_max, kept.copies > 1})
        .for_version(kMiB);
  };
  const StorePlace two = worker({3}, 2 * kMiB);
  EXPECT_EQ(two.memory_directory, "");
  EXPECT_THAT(two.why, HasSubstr("--memory-max allows 2.0 MiB; with --single-copy one copy of 1.0 MiB"));
  EXPECT_THAT(worker({3}, kMiB).why, Not(HasSubstr("--single-copy"))) << "which would not fit either";
  EXPECT_THAT(places(VersionsIn::kAuto, 2 * kMiB).for_version(kMiB).why, Not(HasSubstr("--single-copy")))
      << "an origin";
  EXPECT_EQ(worker(kSingleCopy, 2 * kMiB).memory_directory, in_memory());
  EXPECT_EQ(worker(kSingleCopy, kMiB).memory_directory, "");
}

TEST_F(PlaceOfANode, HasRoomForASecondCopyOrNot) {
  const VersionsPlace place(files, {VersionsIn::kMemory, state.path(), memory.path(), kSingleCopy, 2 * kMiB});
  ASSERT_EQ(place.at_start().value()->memory_directory, in_memory());
  EXPECT_TRUE(place.check_room(kMiB / 2, 2).has_value());
  EXPECT_THAT(place.check_room(kMiB, 2),
              FailsWith(Errc::kNoSpace, "2 copies of 1.0 MiB take 2.2 MiB, and --memory-max allows 2.0 MiB",
                        "--versions-in disk"));
}

TEST_F(PlaceOfANode, StaysWhereVersionsAre) {
  std::filesystem::create_directories(state.file("versions/000000000001"));
  std::optional<StorePlace> place = places(VersionsIn::kAuto).at_start().value();
  ASSERT_TRUE(place);
  EXPECT_EQ(place->memory_directory, "");
  EXPECT_THAT(place->why, HasSubstr("--versions-in memory moves them"));

  std::filesystem::remove_all(state.file("versions"));
  std::filesystem::create_directories(in_memory() / "incoming" / "000000000001");
  ASSERT_EQ(places(VersionsIn::kAuto).at_start().value(), std::nullopt) << "nothing leads there";
  std::filesystem::create_symlink(in_memory(), state.file("memory"));
  place = places(VersionsIn::kAuto, 1).at_start().value();
  ASSERT_TRUE(place);
  EXPECT_EQ(place->memory_directory, in_memory());

  // After a power cut what is kept on the disk says nothing but how much it is.
  std::filesystem::remove_all(in_memory());
  std::filesystem::create_directories(state.file("versions/000000000001"));
  ASSERT_EQ(places(VersionsIn::kAuto).at_start().value(), std::nullopt) << "there is no record";
}

TEST_F(PlaceOfANode, LeavesOthersWhatTheyHaveChosen) {
  const MemoryRoom before = memory_room(memory.path(), in_memory());
  EXPECT_EQ(before.claimed, 0u);
  const TempDir other;
  const VersionsPlace theirs(files, {VersionsIn::kAuto, other.path(), memory.path(), {3}, {}});
  const std::filesystem::path there = theirs.for_version(kMiB).memory_directory;
  const std::uint64_t claimed = memory_room(memory.path(), in_memory()).claimed;
  EXPECT_LE(claimed, bytes_needed(kMiB, {3}));
  EXPECT_GT(claimed, 3 * kMiB) << "but for what the claim itself takes";
  EXPECT_EQ(memory_room(memory.path(), there).claimed, 0u) << "its own";
  std::ofstream(there / "taken") << std::string(2 * kMiB, 'x');
  const std::uint64_t left = memory_room(memory.path(), in_memory()).claimed;
  EXPECT_LE(left, claimed - 2 * kMiB);
  EXPECT_GT(left, 0u);
}

TEST(VersionsPlace, EachStateDirectoryHasItsOwn) {
  const TempDir temp;
  for (const char* name : {"a", "b", "x"}) std::filesystem::create_directory(temp.file(name));
  const auto a = make_memory_directory(temp.path(), temp.file("a"));
  ASSERT_TRUE(a.has_value()) << a.error().message();
  EXPECT_EQ(*a, make_memory_directory(temp.path(), temp.file("x/../a")).value());
  EXPECT_NE(*a, memory_directory_of(temp.path(), temp.file("b")));
  std::filesystem::permissions(*a, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
  EXPECT_EQ(make_memory_directory(temp.path(), temp.file("a")).error().code, Errc::kNotAllowed);
}

TEST(VersionsPlace, IsReadByThoseWhoMayReadTheStateDirectory) {
  using std::filesystem::perms;
  const TempDir temp;
  std::filesystem::create_directory(temp.file("a"));
  for (const perms allowed : {perms::owner_all | perms::group_read | perms::group_exec, perms::owner_all}) {
    std::filesystem::permissions(temp.file("a"), allowed);
    const auto made = make_memory_directory(temp.path(), temp.file("a"));
    ASSERT_TRUE(made.has_value()) << made.error().message();
    EXPECT_EQ(std::filesystem::status(*made).permissions(), allowed);
  }
}

TEST(VersionsPlace, ALinkInItsPlaceIsRefused) {
  const TempDir temp;
  std::filesystem::create_directory(temp.file("a"));
  std::filesystem::create_directory(temp.file("elsewhere"));
  std::filesystem::create_symlink(temp.file("elsewhere"), memory_directory_of(temp.path(), temp.file("a")));
  EXPECT_EQ(make_memory_directory(temp.path(), temp.file("a")).error().code, Errc::kNotAllowed);
}

}  // namespace
}  // namespace weightcast
