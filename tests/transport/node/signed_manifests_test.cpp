// When a signature counts: at arrival, of what is stored, and where an origin is to sign.
#include "transport/node/payload/signed_manifests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/result_matchers.h"
#include "tests/transport/io/store/store_patch_fixture.h"
#include "tests/transport/security/cluster_keys.h"
#include "transport/security/revocations.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kDay_s = 24 * 3600;

class SignedManifestsTest : public testing::Test {
 protected:
  [[nodiscard]] Manifest published_at(std::int64_t unix_s) const {
    Manifest manifest = publication(1, {{"model.safetensors", 1000}}).manifest;
    manifest.published_unix_ms = 1000 * unix_s;
    ManifestAuthor{RunId{0xa}, signer_}.sign(manifest);
    return manifest;
  }
  [[nodiscard]] bool arrives(const Manifest& manifest, std::int64_t now) const {
    return check_manifest(manifest, keys_, {}, now).has_value();
  }
  [[nodiscard]] bool stays(const Manifest& manifest, std::int64_t now) const {
    return check_accepted_manifest(manifest, keys_, {}, now).has_value();
  }

  ClusterKeys cluster_;
  NodeKeys keys_ = cluster_.origin();
  CertificateInfo info_ = *read_certificate(keys_.signing_certificate.get());
  std::shared_ptr<const ManifestSigner> signer_ = std::make_shared<SigningKey>(keys_);
};

// Else a worker would throw it away, ask for it again, and so on.
TEST_F(SignedManifestsTest, WhatIsAcceptedStaysAcceptedWhateverTheClockOfItsOriginSaid) {
  const std::int64_t begin = info_.not_before_unix_s, end = info_.not_after_unix_s;
  for (const std::int64_t published : {begin - 400 * kDay_s, begin - 1, begin, end, end + 1, end + 4000 * kDay_s}) {
    const Manifest manifest = published_at(published);
    for (const std::int64_t now : {begin - kDay_s, begin, begin + kDay_s, end, end + kDay_s}) {
      SCOPED_TRACE(testing::Message() << "published " << published - begin << " s after the begin, now "
                                      << now - begin);
      if (arrives(manifest, now)) {
        EXPECT_TRUE(stays(manifest, now));
      }
    }
  }
}

TEST_F(SignedManifestsTest, WhatIsStoredOutlivesItsCertificateIfThatCountedWhenItWasPublished) {
  const std::int64_t later = info_.not_after_unix_s + kDay_s;
  const Manifest in_time = published_at(cluster_.now_unix_s), too_early = published_at(info_.not_before_unix_s - 1);
  EXPECT_FALSE(arrives(in_time, later));
  EXPECT_TRUE(stays(in_time, later));
  EXPECT_FALSE(stays(too_early, later));
}

TEST_F(SignedManifestsTest, AnOriginSignsNothingOutsideOfItsCertificatesTime) {
  EXPECT_THAT(check_may_sign(keys_, cluster_.now_unix_s), Succeeds());
  for (const std::int64_t at : {info_.not_before_unix_s - 1, info_.not_after_unix_s + 1}) {
    const Status refused = check_may_sign(keys_, at);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Errc::kTimedOut);
    EXPECT_THAT(refused.error().detail, HasSubstr("this host's clock says " + date_of(at)));
    EXPECT_THAT(refused.error().detail, HasSubstr("keys issue " + keys_.info.name + " --renew"));
  }
}

}  // namespace
}  // namespace weightcast
