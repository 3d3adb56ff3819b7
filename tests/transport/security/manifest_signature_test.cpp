#include "transport/security/manifest_signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/security/cluster_keys.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kStatement = "version 7 is this";

struct ManifestSignatureTest : testing::Test {
  ClusterKeys cluster;
  NodeKeys origin = cluster.origin();
  std::string signature = sign_statement(origin.signing_key.get(), kStatement);

  Result<Vouched> check(std::string_view statement, std::string_view bytes, X509* certificate,
                        std::int64_t now_unix_s) const {
    return check_statement(statement, bytes, certificate, {}, origin.authority.get(), now_unix_s);
  }
  Result<Vouched> check(std::string_view statement, std::string_view bytes) const {
    return check(statement, bytes, origin.signing_certificate.get(), cluster.now_unix_s);
  }
};

TEST_F(ManifestSignatureTest, HoldsForWhatWasSignedAndNothingElse) {
  EXPECT_EQ(signature.size(), 64u);
  EXPECT_EQ(signature, sign_statement(origin.signing_key.get(), kStatement)) << "records are compared byte for byte";
  const auto checked = check(kStatement, signature);
  ASSERT_TRUE(checked.has_value()) << checked.error().message();
  EXPECT_EQ(checked->info.use, KeyUse::kSigning);
  EXPECT_EQ(check("version 8 is this", signature).error().code, Errc::kNotAllowed);
  EXPECT_EQ(check("", signature).error().code, Errc::kNotAllowed);
  for (std::size_t cut = 0; cut < signature.size(); ++cut) {
    EXPECT_FALSE(check(kStatement, std::string_view(signature).substr(0, cut)).has_value()) << cut;
  }
  for (std::size_t bit = 0; bit < 8 * signature.size(); bit += 5) {
    std::string other = signature;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(check(kStatement, other).has_value()) << bit;
  }
  EXPECT_FALSE(check(kStatement, signature + "x").has_value());
}

TEST_F(ManifestSignatureTest, IsNotBelievedOfAnybodyElse) {
  const NodeKeys worker = cluster.worker("a");
  const auto by_worker =
      check(kStatement, sign_statement(worker.key.get(), kStatement), worker.certificate.get(), cluster.now_unix_s);
  EXPECT_THAT(by_worker.error().detail, HasSubstr("worker a, which is not for signing manifests"));
  const auto by_origin =
      check(kStatement, sign_statement(origin.key.get(), kStatement), origin.certificate.get(), cluster.now_unix_s);
  EXPECT_EQ(by_origin.error().code, Errc::kNotAllowed) << "its key for connections is another";

  ClusterKeys others;
  const NodeKeys stranger = others.origin();
  const auto by_stranger = check(kStatement, sign_statement(stranger.signing_key.get(), kStatement),
                                 stranger.signing_certificate.get(), cluster.now_unix_s);
  EXPECT_EQ(by_stranger.error().code, Errc::kNotAllowed);
  EXPECT_THAT(by_stranger.error().detail, HasSubstr("another cluster's"));
}

TEST_F(ManifestSignatureTest, CountsWhileItsCertificateDoes) {
  X509* certificate = origin.signing_certificate.get();
  EXPECT_TRUE(check(kStatement, signature, certificate, cluster.now_unix_s + 364 * kDay_s).has_value());
  EXPECT_EQ(check(kStatement, signature, certificate, cluster.now_unix_s + 366 * kDay_s).error().code, Errc::kTimedOut);
  EXPECT_EQ(check(kStatement, signature, certificate, cluster.now_unix_s - 2 * kDay_s).error().code, Errc::kTimedOut);
}

TEST_F(ManifestSignatureTest, CertificateTravelsAsBytesAndAnythingElseIsNone) {
  const std::string der = to_der(origin.signing_certificate.get(), {});
  const auto read = from_der(der);
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(check(kStatement, signature, read->front().get(), cluster.now_unix_s).has_value());
  for (std::size_t cut = 0; cut < der.size(); ++cut) {
    EXPECT_EQ(from_der(std::string_view(der).substr(0, cut)).error().code, Errc::kNotAllowed) << cut;
  }
  EXPECT_FALSE(from_der(der + "x").has_value());
  std::string many;
  for (std::size_t i = 1; i <= kSentCertificatesMax; ++i) {
    many += der;
    ASSERT_TRUE(from_der(many).has_value());
    EXPECT_EQ(from_der(many)->size(), i);
  }
  EXPECT_FALSE(from_der(many + der).has_value());
}

}  // namespace
}  // namespace weightcast
