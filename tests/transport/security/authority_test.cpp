#include "transport/security/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/result_matchers.h"
#include "tests/transport/security/cluster_keys.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

TEST(Authority, WritesFilesForTheirOwnerOnlyWhateverTheUmask) {
  const mode_t before = ::umask(0);
  const ClusterKeys cluster;
  static_cast<void>(cluster.issue("w1"));
  cluster.revoke("w1");
  ::umask(before);
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(cluster.directory())) {
    if (!entry.is_regular_file()) continue;
    ++files;
    EXPECT_EQ(mode_of(entry.path()), 0600u) << entry.path();
    EXPECT_NE(entry.path().extension(), ".tmp");
  }
  EXPECT_EQ(files, 6u) << "authority, origin, worker, register, list, lock";
}

struct AuthorityTest : testing::Test {
  const ClusterKeys cluster;
};

TEST_F(AuthorityTest, IsNeverReplaced) {
  const std::string before = cluster.open().cluster();
  EXPECT_THAT(Authority::init(cluster.directory(), "origin", 365, cluster.now_unix_s), FailsWith(Errc::kAlreadyExists));
  EXPECT_EQ(cluster.open().cluster(), before);
  EXPECT_EQ(cluster.origin().info.cluster, before);
}

TEST(Authority, MissingOneSaysWhatMakesIt) {
  EXPECT_THAT(Authority::open("/nowhere", unix_now_s()), FailsWith(Errc::kNotFound, "weightcast keys init"));
}

TEST_F(AuthorityTest, IsUsedByOneCommandAtATime) {
  const Authority first = cluster.open();
  EXPECT_THAT(Authority::open(cluster.directory(), cluster.now_unix_s), FailsWith(Errc::kBusy));
}

TEST_F(AuthorityTest, TakesNamesByTheRulesOfNodes) {
  for (const std::string& name : {std::string(), std::string("-w"), std::string("a b"), std::string("../x"),
                                  std::string("a\nb"), std::string(256, 'a')}) {
    EXPECT_THAT(cluster.open().issue(name, 1, false, cluster.now_unix_s), FailsWith(Errc::kInvalidArgument)) << name;
  }
  const TempDir temp;
  EXPECT_EQ(Authority::init(temp.file("k"), "a b", 1, 0).error().code, Errc::kInvalidArgument);
}

// Names may hold what a path takes for something else.
TEST_F(AuthorityTest, KeepsEveryFileBelowItsDirectory) {
  for (const std::string& name :
       {std::string("rack/host"), std::string("a/../../b"), std::string("authority"), "n" + std::string(254, '/')}) {
    const fs::path path = cluster.issue(name);
    EXPECT_EQ(path.parent_path(), fs::path(cluster.directory()) / "workers") << name;
    EXPECT_EQ(cluster.read(path).info.name, name);
  }
  EXPECT_EQ(cluster.origin().info.name, "origin");
}

TEST_F(AuthorityTest, GivesANameToOneNode) {
  const std::string path = cluster.issue("w1");
  const KeyId first = cluster.read(path).info.key;
  for (const char* name : {"w1", "origin"}) {
    EXPECT_THAT(cluster.open().issue(name, 365, false, cluster.now_unix_s), FailsWith(Errc::kAlreadyExists, "--renew"))
        << name;
  }
  EXPECT_EQ(cluster.read(path).info.key, first);
  EXPECT_EQ(cluster.issue("w1", 365, true), path);
  EXPECT_NE(cluster.read(path).info.key, first);
  EXPECT_EQ(cluster.open().issue("w2", 365, true, cluster.now_unix_s).error().code, Errc::kNotFound);
}

TEST_F(AuthorityTest, RenewsTheOriginAsOrigin) {
  EXPECT_EQ(cluster.issue("origin", 30, true), cluster.origin_file());
  EXPECT_EQ(cluster.origin().role(), Role::kOrigin);
  EXPECT_NE(cluster.origin().signing_key, nullptr);
}

TEST_F(AuthorityTest, IssuesNothingBeyondItsOwnEnd) {
  const std::int64_t later = cluster.now_unix_s + 3000 * kDay_s;
  {
    auto authority = Authority::open(cluster.directory(), later);
    ASSERT_TRUE(authority.has_value());
    ASSERT_TRUE(authority->issue("w1", 3650, false, later).has_value());
    EXPECT_EQ(authority->issued().back().expires_unix_s, cluster.now_unix_s + 3650 * kDay_s);
    EXPECT_EQ(authority->issue("w2", 0, false, later).error().code, Errc::kInvalidArgument);
  }
  EXPECT_THAT(Authority::open(cluster.directory(), cluster.now_unix_s + 3651 * kDay_s), FailsWith(Errc::kTimedOut));
}

TEST_F(AuthorityTest, RevokesAllKeysOfANameAndNoOthers) {
  const NodeKeys old = cluster.worker("w1");
  const NodeKeys renewed = cluster.read(cluster.issue("w1", 365, true));
  const NodeKeys other = cluster.worker("w2");
  const auto list = [&] { return cluster.revocations(old); };
  cluster.revoke("w1");
  EXPECT_EQ(list().number(), 1u);
  EXPECT_TRUE(list().contains(old.info.serial, cluster.now_unix_s));
  EXPECT_TRUE(list().contains(renewed.info.serial, cluster.now_unix_s));
  EXPECT_FALSE(list().contains(other.info.serial, cluster.now_unix_s));
  cluster.revoke("w2");
  cluster.revoke("w2");  // harmless
  EXPECT_EQ(list().number(), 3u);
  EXPECT_TRUE(list().contains(old.info.serial, cluster.now_unix_s)) << "a later list keeps the earlier ones";
  EXPECT_TRUE(list().contains(other.info.serial, cluster.now_unix_s));
  EXPECT_EQ(cluster.open().revoke("w3", cluster.now_unix_s).error().code, Errc::kNotFound);
  const NodeKeys fresh = cluster.worker("w1");  // the name may come back, by another key
  EXPECT_FALSE(list().contains(fresh.info.serial, cluster.now_unix_s));
}

TEST_F(AuthorityTest, ForgetsWhatHasExpiredFromTheList) {
  const NodeKeys old = cluster.read(cluster.issue("w1", 1));
  cluster.revoke("w1");
  const std::int64_t later = cluster.now_unix_s + 30 * kDay_s;
  {
    auto authority = Authority::open(cluster.directory(), later);
    ASSERT_TRUE(authority->revoke("origin", later).has_value());
  }
  EXPECT_FALSE(cluster.revocations(old).contains(old.info.serial, later));
}

TEST_F(AuthorityTest, DamagedFilesAreRefusedByName) {
  const fs::path issued = fs::path(cluster.directory()) / "issued.json";
  for (const std::string& text :
       {std::string("{"), std::string(R"({"form":2,"keys":[]})"), std::string(R"({"form":1})"),
        std::string(R"({"form":1,"keys":[{"name":"w","use":"worker","serial":"xyz",)"
                    R"("expires_unix_s":1,"revoked_unix_s":0}]})")}) {
    ASSERT_TRUE(write_owner_only(issued, text).has_value());
    const auto opened = Authority::open(cluster.directory(), cluster.now_unix_s);
    ASSERT_FALSE(opened.has_value()) << text;
    EXPECT_THAT(opened.error().detail, HasSubstr("issued.json"));
  }
  ASSERT_TRUE(
      write_owner_only(fs::path(cluster.directory()) / "authority.pem", to_text(cluster.origin()).text()).has_value());
  EXPECT_EQ(Authority::open(cluster.directory(), cluster.now_unix_s).error().code, Errc::kCorrupt);
}

TEST_F(AuthorityTest, IssuesKeysWithAddresses) {
  const auto issue = [&](const std::string& name, const std::vector<std::string>& hosts) {
    return cluster.open().issue(name, 30, false, cluster.now_unix_s, hosts);
  };
  const auto path = issue("w1", {"gpu-1.example"});
  ASSERT_TRUE(path.has_value()) << path.error().message();
  EXPECT_EQ(cluster.read(*path).info.addresses, std::vector<std::string>{"gpu-1.example"});
  EXPECT_FALSE(issue("w2", {"two words"}).has_value());
  EXPECT_FALSE(issue("w2", {""}).has_value());
  EXPECT_FALSE(issue("w2", std::vector<std::string>(kCertificateAddressesMax + 1, "h")).has_value());
}

}  // namespace
}  // namespace weightcast
