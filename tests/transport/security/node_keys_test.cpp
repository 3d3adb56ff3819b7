#include "transport/security/node_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/result_matchers.h"
#include "tests/transport/security/cluster_keys.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

TEST(NodeKeys, AreReadFromTheFileThatWasIssued) {
  const ClusterKeys cluster;
  const NodeKeys worker = cluster.worker("w1"), origin = cluster.origin();
  EXPECT_EQ(worker.role(), Role::kWorker);
  EXPECT_EQ(worker.info.name, "w1");
  EXPECT_EQ(worker.signing_key, nullptr);
  EXPECT_EQ(origin.role(), Role::kOrigin);
  EXPECT_EQ(origin.info.name, "origin");
  ASSERT_NE(origin.signing_key, nullptr);
  EXPECT_NE(key_id(origin.signing_key.get()), key_id(origin.key.get()));
  EXPECT_EQ(worker.info.cluster, origin.info.cluster);
  EXPECT_EQ(X509_cmp(worker.authority.get(), origin.authority.get()), 0);
}

TEST(NodeKeys, MissingFileSaysWhatMakesIt) {
  EXPECT_THAT(read_node_keys("/nowhere/w1.pem", unix_now_s()),
              FailsWith(Errc::kNotFound, "/nowhere/w1.pem", "weightcast keys issue"));
}

TEST(NodeKeys, FileThatOthersMayUseIsRefused) {
  const ClusterKeys cluster;
  const std::string path = cluster.issue("w1");
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0644, 0660}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_THAT(read_node_keys(path, cluster.now_unix_s), FailsWith(Errc::kNotAllowed, "chmod 600"))
        << std::oct << mode;
  }
  for (const mode_t mode : {0600, 0400, 0700}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_TRUE(read_node_keys(path, cluster.now_unix_s).has_value()) << std::oct << mode;
  }
}

TEST(NodeKeys, FileOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const ClusterKeys cluster;
  const std::string path = cluster.issue("w1");
  ASSERT_EQ(::chown(path.c_str(), 4711, 4711), 0);
  EXPECT_THAT(read_node_keys(path, cluster.now_unix_s), FailsWith(Errc::kNotAllowed, "user 4711"));
}

TEST(NodeKeys, ADirectoryOrAHugeFileIsRefused) {
  const TempDir temp;
  EXPECT_EQ(read_node_keys(temp.path(), 0).error().code, Errc::kNotAllowed);
  const std::string huge = temp.write("huge", std::string(65 * 1024, 'x'));
  ASSERT_EQ(::chmod(huge.c_str(), 0600), 0);
  EXPECT_EQ(read_node_keys(huge, 0).error().code, Errc::kTooLarge);
}

TEST(NodeKeys, ExpiredOnesAreRefusedWithTheWayOut) {
  const ClusterKeys cluster(unix_now_s() - 10 * kDay_s);
  const std::string path = cluster.issue("w1", 9);
  EXPECT_TRUE(read_node_keys(path, cluster.now_unix_s).has_value());
  EXPECT_THAT(read_node_keys(path, unix_now_s()),
              FailsWith(Errc::kTimedOut, "expired on", "weightcast keys issue w1 --renew"));
}

TEST(NodeKeys, WarnBeforeTheyExpire) {
  const ClusterKeys cluster;
  const NodeKeys keys = cluster.worker("w1");
  EXPECT_EQ(keys.expiry_warning(cluster.now_unix_s), std::nullopt);
  EXPECT_EQ(keys.expiry_warning(cluster.now_unix_s + 335 * kDay_s - 1), std::nullopt);
  const auto near = keys.expiry_warning(cluster.now_unix_s + 335 * kDay_s);
  ASSERT_TRUE(near.has_value());
  EXPECT_THAT(*near, HasSubstr("w1 expires on"));
  EXPECT_THAT(*keys.expiry_warning(cluster.now_unix_s + 366 * kDay_s), HasSubstr("has expired"));
}

/// The blocks of a file of keys, to be put together in other ways.
struct Blocks {
  explicit Blocks(const ClusterKeys& cluster) {
    const NodeKeys w1 = cluster.worker("w1"), o = cluster.origin();
    append_pem(key, w1.key.get());
    append_pem(certificate, w1.certificate.get());
    append_pem(authority, w1.authority.get());
    append_pem(origin_key, o.key.get());
    append_pem(origin_certificate, o.certificate.get());
    append_pem(signing_key, o.signing_key.get());
    append_pem(signing_certificate, o.signing_certificate.get());
  }
  std::string key, certificate, authority, origin_key, origin_certificate, signing_key, signing_certificate;
};

TEST(NodeKeys, BlocksMayComeInAnyOrder) {
  const ClusterKeys cluster;
  const Blocks b(cluster);
  EXPECT_TRUE(parse_node_keys(b.authority + b.certificate + b.key, "f", cluster.now_unix_s).has_value());
  EXPECT_TRUE(parse_node_keys(b.signing_certificate + b.authority + b.signing_key + b.origin_certificate + b.origin_key,
                              "f", cluster.now_unix_s)
                  .has_value());
}

TEST(NodeKeys, IncompleteOrMixedFilesAreRefused) {
  const ClusterKeys cluster, other;
  const Blocks b(cluster), o(other);
  const std::string damaged = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
  const auto code_of = [&](const std::string& text) {
    const auto parsed = parse_node_keys(text, "f", cluster.now_unix_s);
    return parsed.has_value() ? std::optional<Errc>() : parsed.error().code;
  };
  ASSERT_EQ(code_of(b.key + b.certificate + b.authority), std::nullopt) << "the control";
  EXPECT_EQ(code_of(""), Errc::kCorrupt);
  EXPECT_EQ(code_of("hello"), Errc::kCorrupt);
  EXPECT_EQ(code_of(b.certificate + b.authority), Errc::kCorrupt) << "no private key";
  EXPECT_EQ(code_of(b.key + b.authority), Errc::kCorrupt) << "no certificate";
  EXPECT_EQ(code_of(b.key + b.certificate), Errc::kCorrupt) << "no authority";
  EXPECT_EQ(code_of(b.origin_key + b.certificate + b.authority), Errc::kCorrupt) << "another's private key";
  EXPECT_EQ(code_of(b.key + b.certificate + b.certificate + b.authority), Errc::kCorrupt) << "twice";
  EXPECT_EQ(code_of(b.key + b.certificate + b.authority + o.authority), Errc::kCorrupt) << "two authorities";
  EXPECT_EQ(code_of(b.key + b.certificate + b.authority + damaged), Errc::kCorrupt) << "a damaged block";
  EXPECT_EQ(code_of(b.origin_key + b.origin_certificate + b.authority), Errc::kCorrupt) << "an origin that cannot sign";
  EXPECT_EQ(code_of(b.key + b.certificate + b.authority + b.signing_key + b.signing_certificate), Errc::kCorrupt)
      << "a worker that could sign";
  EXPECT_EQ(code_of(b.key + b.certificate + o.authority), Errc::kNotAllowed) << "another cluster's authority";
  EXPECT_EQ(code_of(o.key + o.certificate + b.authority), Errc::kNotAllowed) << "another cluster's certificate";
}

TEST(NodeKeys, TruncatedAnywhereAreRefused) {
  const ClusterKeys cluster;
  const std::string text(to_text(cluster.origin()).text());
  ASSERT_TRUE(parse_node_keys(text, "f", cluster.now_unix_s).has_value());
  // The last line ends a block, with or without its line feed.
  for (std::size_t cut = 0; cut + 2 < text.size(); cut += 11) {
    EXPECT_FALSE(parse_node_keys(text.substr(0, cut), "f", cluster.now_unix_s).has_value()) << cut;
  }
}

TEST(NodeKeys, AKeyUnderAPassPhraseIsRefusedWithoutAsking) {
  const std::string text =
      "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAhx\n"
      "-----END ENCRYPTED PRIVATE KEY-----\n";
  EXPECT_EQ(parse_node_keys(text, "f", 0).error().code, Errc::kCorrupt);
}

TEST(HideMemory, LeavesNoCoreDump) {
  const pid_t child = ::fork();
  if (child == 0) {
    hide_memory();
    ::_exit(::prctl(PR_GET_DUMPABLE) == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace weightcast
