#include "transport/node/members/revocation_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files/posix_file_system.h"
#include "tests/result_matchers.h"
#include "tests/transport/security/cluster_keys.h"
#include "transport/io/uv_loop.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

/// A worker's file of keys and its state directory, far from the authority's.
struct RevocationFileTest : ::testing::Test {
  ClusterKeys keys;
  PosixFileSystem files;
  UvLoop loop;
  const std::string worker_keys = keys.issue("w");
  const std::string state = keys.temp().file("state");
  std::shared_ptr<TlsContext> tls = TlsContext::make(keys.read(worker_keys));
  int changes = 0;

  void SetUp() override { std::filesystem::create_directory(state); }

  /// The list in which `name` has been revoked, too.
  [[nodiscard]] std::string revoke(const std::string& name) const {
    keys.revoke(name);
    return text_of(keys.revoked_file());
  }
  [[nodiscard]] static std::string text_of(const std::string& path) {
    PosixFileSystem there;
    return *read_file(there, path, kMiB);
  }
  [[nodiscard]] std::unique_ptr<RevocationFile> make() {
    return std::make_unique<RevocationFile>(loop, files, tls, RevocationFile::Places{worker_keys, state},
                                            [this] { ++changes; });
  }
  /// The daemon starts again.
  [[nodiscard]] std::unique_ptr<RevocationFile> restart() {
    tls = TlsContext::make(keys.read(worker_keys));
    auto made = make();
    const Status started = made->start();
    EXPECT_TRUE(started.has_value()) << started.error().message();
    return made;
  }
  [[nodiscard]] bool counts_as_revoked(const std::string& name) const {
    return tls->revocations().contains(keys.read(keys.file_of(name)).info.serial, keys.now_unix_s);
  }
};

TEST_F(RevocationFileTest, KeepsAListFromTheOriginOverARestart) {
  static_cast<void>(keys.issue("a"));
  const auto file = restart();
  EXPECT_TRUE(file->take(revoke("a")).has_value());
  EXPECT_TRUE(counts_as_revoked("a"));
  EXPECT_EQ(changes, 1);
  const auto again = restart();
  EXPECT_TRUE(counts_as_revoked("a"));
}

TEST_F(RevocationFileTest, AnOlderListDoesNotCount) {
  static_cast<void>(keys.issue("a"));
  static_cast<void>(keys.issue("b"));
  const std::string first = revoke("a");
  const std::string second = revoke("b");
  auto file = restart();
  EXPECT_TRUE(file->take(second).has_value());
  EXPECT_THAT(file->take(first), FailsWith(Errc::kNotAllowed, "list 1 is older than the one that counts here, 2"));
  EXPECT_TRUE(file->take(second).has_value()) << "the same again is no harm";
  EXPECT_EQ(changes, 1);
  // Nor one that somebody puts beside the keys.
  ASSERT_TRUE(write_owner_only(std::filesystem::path(worker_keys).parent_path() / "revoked.pem", first).has_value());
  file = restart();
  EXPECT_TRUE(counts_as_revoked("b"));
  EXPECT_EQ(tls->revocations().number(), 2u);
}

TEST_F(RevocationFileTest, AListOfAnotherClusterDoesNotCount) {
  const ClusterKeys other;
  static_cast<void>(other.issue("a"));
  other.revoke("a");
  auto file = restart();
  EXPECT_THAT(file->take(text_of(other.revoked_file())), FailsWith(Errc::kNotAllowed));
  EXPECT_EQ(tls->revocations().number(), 0u);
  // A state directory that another cluster's worker has used before.
  std::filesystem::copy_file(other.revoked_file(), state + "/revoked.pem");
  file = restart();
  EXPECT_EQ(tls->revocations().number(), 0u);
}

TEST_F(RevocationFileTest, AKeptListThatIsDamagedKeepsTheNodeFromStarting) {
  static_cast<void>(keys.issue("a"));
  EXPECT_TRUE(restart()->take(revoke("a")).has_value());
  ASSERT_TRUE(write_owner_only(state + "/revoked.pem", "damaged").has_value());
  tls = TlsContext::make(keys.read(worker_keys));
  const Status started = make()->start();
  ASSERT_FALSE(started.has_value());
  EXPECT_THAT(started.error().detail, HasSubstr(state + "/revoked.pem"));
}

}  // namespace
}  // namespace weightcast
