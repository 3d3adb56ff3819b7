#include "transport/node/versions_place.h"

#include <gmock/gmock.h>

#include "base/units.h"
#include "tests/patch/temp_dir.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

constexpr MemoryRoom kRoom{32 * kGiB, 32 * kGiB, std::nullopt};

TEST(VersionsPlace, IsMemoryWhereAllCopiesFitWithRoomToSpare) {
  EXPECT_TRUE(choose_place(8 * kGiB, 3, kRoom).in_memory);
  EXPECT_FALSE(choose_place(9 * kGiB, 3, kRoom).in_memory) << "a tenth, and an eighth of the host's";
  EXPECT_FALSE(choose_place(8 * kGiB, 4, kRoom).in_memory);
}

TEST(VersionsPlace, IsTheDiskWhereAnythingIsTooSmall) {
  MemoryRoom room = kRoom;
  room.directory_free = 64 * kMiB;
  const PlaceChoice plain_container = choose_place(8 * kGiB, 3, room);
  EXPECT_FALSE(plain_container.in_memory);
  EXPECT_THAT(plain_container.why, HasSubstr("the file system in memory has 64.0 MiB"));
  room = kRoom;
  room.group_free = 16 * kGiB;
  EXPECT_THAT(choose_place(8 * kGiB, 3, room).why, HasSubstr("the cgroup has 16.00 GiB"));
  room = kRoom;
  room.host_available = 16 * kGiB;
  EXPECT_THAT(choose_place(8 * kGiB, 3, room).why, HasSubstr("the host has 14.00 GiB"));
}

TEST(VersionsPlace, IsTheDiskUntilTheSizeOfAVersionIsKnown) { EXPECT_FALSE(choose_place(0, 3, kRoom).in_memory); }

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
