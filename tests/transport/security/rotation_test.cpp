// A cluster whose signing key or authority is replaced while nodes have keys of before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/result_matchers.h"
#include "tests/transport/security/cluster_keys.h"
#include "transport/security/manifest_signature.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kOverlapDays = 30;

class Rotation : public ::testing::Test {
 protected:
  ClusterKeys cluster;
  const NodeKeys origin = cluster.origin();
  const NodeKeys worker = cluster.worker("a");
  const std::int64_t now = cluster.now_unix_s;
  const std::int64_t end = now + kOverlapDays * kDay_s;

  void rotate_signing() const {
    const auto path = cluster.open().rotate_signing(kOverlapDays, now);
    ASSERT_TRUE(path.has_value()) << path.error().message();
    EXPECT_EQ(path->native(), cluster.origin_file());
  }
  void rotate_authority() const { ASSERT_THAT(cluster.open().rotate_authority(kOverlapDays, now), Succeeds()); }

  /// Whether the node takes what `signer` signs, as a manifest brings it.
  static Result<Vouched> believes(const NodeKeys& node, const NodeKeys& signer, std::int64_t unix_s) {
    const auto sent = from_der(to_der(signer.signing_certificate.get(), signer.issuers()));
    Between between = node.issuers();
    for (std::size_t i = 1; i < sent->size(); ++i) between.push_back((*sent)[i].get());
    const std::string statement = "version 7 is this";
    return check_statement(statement, sign_statement(signer.signing_key.get(), statement), sent->front().get(), between,
                           node.authority.get(), unix_s);
  }
  /// Whether `node` lets `peer` in, by what each of them has of certificates in between.
  static Result<Vouched> lets_in(const NodeKeys& node, const NodeKeys& peer, std::int64_t unix_s) {
    Between between = node.issuers();
    for (X509* one : peer.issuers()) between.push_back(one);
    return check_chain(peer.certificate.get(), between, node.authority.get(), unix_s);
  }
  static std::string signer_of(const NodeKeys& keys) {
    return read_certificate(keys.signing_certificate.get())->serial;
  }
};

TEST_F(Rotation, AnotherSigningKeyCountsAtOnceAndTheOneBeforeForTheOverlap) {
  rotate_signing();
  const NodeKeys fresh = cluster.origin();
  EXPECT_NE(signer_of(fresh), signer_of(origin));
  EXPECT_EQ(fresh.info.key, origin.info.key) << "its key for connections is the same";
  EXPECT_TRUE(believes(worker, fresh, now).has_value());
  EXPECT_TRUE(believes(worker, origin, now).has_value());
  const Revocations list = cluster.revocations(worker);
  EXPECT_FALSE(list.contains(signer_of(origin), end - 1)) << "what was signed before the end stays good";
  EXPECT_TRUE(list.contains(signer_of(origin), end));
  EXPECT_FALSE(list.contains(signer_of(fresh), end));
  // Stolen rather than old: nothing that it ever signed counts.
  cluster.revoke("origin");
  for (const NodeKeys* keys : {&origin, &fresh})
    EXPECT_TRUE(cluster.revocations(worker).contains(signer_of(*keys), now));
}

TEST_F(Rotation, TwoSigningKeysInARowEndEachInItsTime) {
  rotate_signing();
  const NodeKeys second = cluster.origin();
  ASSERT_TRUE(cluster.open().rotate_signing(2 * kOverlapDays, now).has_value());
  const Revocations list = cluster.revocations(worker);
  EXPECT_TRUE(list.contains(signer_of(origin), end));
  EXPECT_FALSE(list.contains(signer_of(second), end));
  EXPECT_TRUE(list.contains(signer_of(second), now + 2 * kOverlapDays * kDay_s));
}

TEST_F(Rotation, NodesOfBothAuthoritiesAcceptEachOtherForTheOverlap) {
  rotate_authority();
  const NodeKeys new_origin = cluster.origin(), new_worker = cluster.worker("b");
  EXPECT_NE(new_worker.authority.get(), nullptr);
  EXPECT_NE(cluster.open().cluster(), read_certificate(worker.authority.get())->name);
  for (const std::int64_t at : {now, end}) {
    EXPECT_TRUE(lets_in(worker, new_origin, at).has_value()) << lets_in(worker, new_origin, at).error().message();
    EXPECT_TRUE(lets_in(new_origin, worker, at).has_value());
    EXPECT_TRUE(lets_in(worker, new_worker, at).has_value());
    EXPECT_TRUE(lets_in(new_worker, worker, at).has_value());
    EXPECT_TRUE(lets_in(new_worker, origin, at).has_value()) << "the origin has not started again yet";
    for (const NodeKeys* node : {&worker, &new_worker}) {
      EXPECT_TRUE(believes(*node, new_origin, at).has_value());
      EXPECT_TRUE(believes(*node, origin, at).has_value());
    }
  }
  for (const NodeKeys* node : {&new_origin, &new_worker}) {
    EXPECT_EQ(lets_in(*node, worker, end + 1).error().code, Errc::kTimedOut);
    EXPECT_EQ(believes(*node, origin, end + 1).error().code, Errc::kTimedOut);
    EXPECT_TRUE(believes(*node, origin, now).has_value()) << "a version on disk, published then";
  }
  const ClusterKeys others;
  const NodeKeys stranger = others.worker("a");
  EXPECT_EQ(lets_in(new_origin, stranger, now).error().code, Errc::kNotAllowed);
  EXPECT_EQ(lets_in(stranger, new_origin, now).error().code, Errc::kNotAllowed);
}

TEST_F(Rotation, OneListOfRevokedKeysIsReadUnderEitherAuthority) {
  cluster.revoke("a");
  const std::uint64_t before = cluster.revocations(worker).number();
  rotate_authority();
  const NodeKeys fresh = cluster.worker("b");
  cluster.revoke("b");
  EXPECT_EQ(cluster.revocations(worker).number(), cluster.revocations(fresh).number());
  EXPECT_GT(cluster.revocations(worker).number(), before);
  for (const NodeKeys* node : {&worker, &fresh}) {
    for (const NodeKeys* revoked : {&worker, &fresh}) {
      EXPECT_TRUE(cluster.revocations(*node).contains(revoked->info.serial, now));
    }
  }
}

TEST_F(Rotation, ThirdAuthorityWaitsForTheEndOfTheFirst) {
  rotate_authority();
  EXPECT_THAT(cluster.open().rotate_authority(kOverlapDays, now), FailsWith(Errc::kAlreadyExists, "still counts"));
  EXPECT_EQ(cluster.open().authorities().size(), 2u);
  auto later = Authority::open(cluster.directory(), end + 1);
  ASSERT_TRUE(later.has_value()) << later.error().message();
  EXPECT_EQ(later->authorities().size(), 1u);
  EXPECT_TRUE(later->rotate_authority(kOverlapDays, end + 1).has_value());
}

TEST_F(Rotation, TokensOfTheAuthorityBeforeEnd) {
  const auto token = cluster.open().make_token({"w*", 5, now + 60, 30}, now);
  ASSERT_TRUE(token.has_value());
  rotate_authority();
  const auto again = cluster.open().make_token({"w*", 5, now + 60, 30}, now);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_NE(again->authority, token->authority);
}

TEST_F(Rotation, NeedsTheOriginsFile) {
  std::filesystem::rename(cluster.origin_file(), cluster.temp().file("elsewhere.pem"));
  const std::string before = cluster.open().cluster();
  EXPECT_THAT(cluster.open().rotate_signing(kOverlapDays, now).error().detail, HasSubstr("needs the origin's file"));
  EXPECT_THAT(cluster.open().rotate_authority(kOverlapDays, now).error().detail, HasSubstr("needs the origin's file"));
  EXPECT_EQ(cluster.open().cluster(), before);
  EXPECT_EQ(cluster.open().rotate_signing(0, now).error().code, Errc::kInvalidArgument);
}

}  // namespace
}  // namespace weightcast
