#include "transport/node/memory_directories.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/units.h"
#include "tests/patch/temp_dir.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

using testing::IsEmpty;
using testing::SizeIs;

/// A file system in memory, where any user may put names, and state directories elsewhere.
struct MemoryDirectories : testing::Test {
  TempDir memory{TempDir::in_memory()};
  TempDir disk;

  [[nodiscard]] fs::path state(const std::string& name) const {
    fs::create_directory(disk.file(name));
    return disk.file(name);
  }
  /// A node's, as its daemon leaves it.
  fs::path made(const fs::path& state) const {
    const MemoryDirectory taken = MemoryDirectory::take(memory.path(), state).value();
    fs::create_directory_symlink(fs::absolute(state), taken.path() / "state");
    fs::create_directory_symlink(taken.path(), state / "memory");
    std::ofstream(taken.path() / "weights") << std::string(kMiB, 'x');
    return taken.path();
  }
  /// One with a node's name.
  [[nodiscard]] fs::path named(unsigned user, char digit = 'a') const {
    return memory.file("weightcast-" + std::to_string(user) + "-" + std::string(16, digit));
  }
  [[nodiscard]] std::vector<LeftInMemory> left() const { return left_in_memory(memory.path()); }
};

TEST_F(MemoryDirectories, AClaimIsReadOfAnOwnSmallFileAlone) {
  const fs::path other = named(::geteuid());
  fs::create_directory(other);
  const auto claimed = [&] { return claimed_by_others(memory.path(), memory.file("ours")); };
  const auto claim = [&](const std::string& text) {
    fs::remove(other / "claim");
    std::ofstream(other / "claim") << text;
    return claimed();
  };
  EXPECT_EQ(claim("1000000\n"), 1'000'000u - 4096) << "but for the block that the claim itself takes";
  EXPECT_EQ(claim("123456789012345678901234567890\n"), 0u) << "30 digits";
  for (const char* text : {"", "\n", "-1", "+5", "1e9", " 7", "0x10", "12 monkeys"}) EXPECT_EQ(claim(text), 0u) << text;
  fs::remove(other / "claim");
  ASSERT_EQ(::mkfifo((other / "claim").c_str(), 0600), 0);
  EXPECT_EQ(claimed(), 0u) << "and nobody waits for the FIFO's other end";
  write_claim(other, 7);
  fs::remove(other / "claim");
  fs::create_symlink("/dev/zero", other / "claim");
  EXPECT_EQ(claimed(), 0u);
  fs::remove(other / "claim");
  std::ofstream(memory.file("number")) << "1000000\n";
  fs::create_symlink(memory.file("number"), other / "claim");
  EXPECT_EQ(claimed(), 0u) << "a link";
  write_claim(other, 7);
  EXPECT_EQ(fs::file_size(memory.file("number")), 8u) << "nor is anything written through one";
}

TEST_F(MemoryDirectories, TwoClaimsOfAllThereIsAreNoneTooFew) {
  for (const char digit : {'a', 'b'}) {
    fs::create_directory(named(::geteuid(), digit));
    std::ofstream(named(::geteuid(), digit) / "claim") << "18446744073709551615";
  }
  EXPECT_EQ(claimed_by_others(memory.path(), "/none"), ~std::uint64_t{0});
}

TEST_F(MemoryDirectories, NothingOfOthersIsReadOrRemoved) {
  const fs::path writable = named(::geteuid(), 'b');
  fs::create_directory(writable);
  fs::permissions(writable, fs::perms::all);
  fs::create_directory_symlink("/gone", writable / "state");
  const fs::path another = named(::geteuid() + 1, 'c');
  fs::create_directory(another);
  fs::create_directory_symlink("/gone", another / "state");
  const fs::path link = named(::geteuid(), 'd');
  fs::create_directory_symlink(disk.path(), link);
  const fs::path no_digest = memory.file("weightcast-" + std::to_string(::geteuid()) + "-backup");
  fs::create_directory(no_digest);
  fs::create_directory_symlink("/gone", no_digest / "state");
  std::ofstream(disk.file("claim")) << "1000000";
  std::ofstream(writable / "claim") << "1000000";
  EXPECT_EQ(claimed_by_others(memory.path(), "/none"), 0u);
  EXPECT_THAT(left(), IsEmpty());
  EXPECT_EQ(bytes_in_memory(link), 0u) << "the way through it is not walked";
  EXPECT_THAT(remove_memory_directory(link), FailsWith(Errc::kNotAllowed, "another user made it"));
  EXPECT_TRUE(fs::exists(disk.path()));
}

TEST_F(MemoryDirectories, IsOneNodesAtATime) {
  const fs::path ours = state("a");
  auto taken = MemoryDirectory::take(memory.path(), ours);
  ASSERT_TRUE(taken.has_value()) << taken.error().message();
  EXPECT_TRUE(taken->is_there());
  EXPECT_THAT(MemoryDirectory::take(memory.path(), ours), FailsWith(Errc::kBusy, "another node keeps its versions"));
  fs::remove_all(taken->path());
  EXPECT_FALSE(taken->is_there());
  auto again = MemoryDirectory::take(memory.path(), ours);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_FALSE(taken->is_there()) << "it is another one's";
  again->remove();
  EXPECT_TRUE(fs::is_empty(memory.path()));
}

TEST_F(MemoryDirectories, AreLeftWhereTheStateDirectoryIsGone) {
  const fs::path path = made(state("a"));
  EXPECT_THAT(left(), IsEmpty());
  fs::remove_all(disk.file("a"));
  ASSERT_THAT(left(), SizeIs(1));
  EXPECT_EQ(left().front().path, path);
  EXPECT_EQ(left().front().state, disk.file("a"));
  EXPECT_GE(left().front().bytes, kMiB);
  ASSERT_TRUE(remove_left(left().front()).has_value());
  EXPECT_TRUE(fs::is_empty(memory.path()));
}

TEST_F(MemoryDirectories, AreLeftWhereTheStateDirectoryHasItsVersionsElsewhere) {
  made(state("a"));
  fs::remove(disk.path() + "/a/memory");
  EXPECT_THAT(left(), SizeIs(1));
  fs::create_directory_symlink("/nowhere", disk.file("a/memory"));
  EXPECT_THAT(left(), SizeIs(1));
}

TEST_F(MemoryDirectories, AreNotLeftWhileANodeHasThem) {
  const fs::path ours = state("a");
  made(ours);
  const auto taken = MemoryDirectory::take(memory.path(), ours);
  ASSERT_TRUE(taken.has_value());
  const LeftInMemory stale{taken->path(), ours, 0};
  fs::remove_all(ours);
  EXPECT_THAT(left(), IsEmpty());
  EXPECT_EQ(remove_left(stale).error().code, Errc::kBusy);
  EXPECT_EQ(remove_memory_directory(taken->path()).error().code, Errc::kBusy);
}

TEST_F(MemoryDirectories, AreLeftWithoutALinkAfterAWhile) {
  const fs::path path = named(::geteuid());
  fs::create_directory(path);
  EXPECT_THAT(left(), IsEmpty()) << "a node may be about to make it";
  const timeval long_ago[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ASSERT_EQ(::utimes(path.c_str(), long_ago), 0);
  EXPECT_THAT(left(), SizeIs(1));
}

TEST_F(MemoryDirectories, OneHalfRemovedIsRemoved) {
  fs::create_directory(named(::geteuid()).native() + ".removed");
  ASSERT_THAT(left(), SizeIs(1));
  EXPECT_TRUE(remove_left(left().front()).has_value());
  EXPECT_TRUE(fs::is_empty(memory.path()));
}

TEST_F(MemoryDirectories, FollowAStateDirectoryThatWasMoved) {
  const fs::path before = made(state("a"));
  fs::rename(disk.file("a"), disk.file("b"));
  EXPECT_TRUE(adopt_moved(memory.path(), disk.file("b")));
  EXPECT_FALSE(fs::exists(before));
  EXPECT_TRUE(fs::exists(memory_directory_of(memory.path(), disk.file("b")) / "weights"));
}

TEST_F(MemoryDirectories, DoNotFollowACopy) {
  const fs::path before = made(state("a"));
  fs::copy(disk.file("a"), disk.file("b"), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  EXPECT_FALSE(adopt_moved(memory.path(), disk.file("b")));
  EXPECT_TRUE(fs::exists(before / "weights"));
}

}  // namespace
}  // namespace weightcast
