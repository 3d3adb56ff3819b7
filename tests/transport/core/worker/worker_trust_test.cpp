// What a worker makes of signatures and of keys that are revoked.
#include <gtest/gtest.h>

#include "sim/stand_in_keys.h"
#include "tests/transport/core/worker/worker_core_fixture.h"

namespace weightcast {
namespace {

/// A worker that takes nothing that its origin has not signed.
struct SuspiciousWorkerTest : WorkerCoreTest {
  SuspiciousWorkerTest() {
    config.trust = std::make_shared<sim::StandInTrust>();
    config.run = RunId{7};
    renew();
  }

  sim::StandInSigner key;
  ManifestAuthor author{RunId{7}, std::shared_ptr<const ManifestSigner>(std::shared_ptr<void>(), &key)};

  [[nodiscard]] std::shared_ptr<const Manifest> by_author(Manifest manifest) const {
    author.sign(manifest);
    return std::make_shared<const Manifest>(std::move(manifest));
  }
  /// Its growth from 4 to 8 chunks.
  [[nodiscard]] wire::Message growth(const Manifest& four) const {
    wire::Message message;
    *message.mutable_growth() = growth_between(four, *by_author(*taken_over_manifest(Version{1}, 8, 10)));
    return message;
  }
};

TEST_F(SuspiciousWorkerTest, BeginsOnlyWhatIsSignedAndSaysWhyItRefusesTheRest) {
  announce(manifest_of(Version{1}, 100), 1);
  EXPECT_TRUE(begun.empty()) << "it is not signed";
  key.lie(true);
  announce(by_author(*manifest_of(Version{2}, 100)), 2);
  EXPECT_TRUE(begun.empty()) << "it is wrongly signed";
  EXPECT_EQ(last_said(Kind::kInstallFailed).install_failed().code(), static_cast<std::uint32_t>(Errc::kNotAllowed));
  EXPECT_NE(worker.last_error().find("its signature is not the origin's"), std::string::npos) << worker.last_error();
  EXPECT_EQ(worker.intake().refused_manifests(), 2u);
  key.lie(false);
  announce(by_author(*manifest_of(Version{3}, 100)), 3);
  EXPECT_EQ(begun, std::vector{Version{3}});
  EXPECT_EQ(worker.intake().refused_manifests(), 2u);
}

TEST_F(SuspiciousWorkerTest, TakesGrowthsThatAreSigned) {
  const auto four = by_author(*taken_over_manifest(Version{1}, 4, 10));
  announce(four, 1);
  ASSERT_EQ(begun, std::vector{Version{1}});
  tell(growth(*four));
  EXPECT_EQ(worker.intake().chunks_total(), 8u);
  EXPECT_EQ(worker.intake().refused_manifests(), 0u);
}

TEST_F(SuspiciousWorkerTest, GivesAPayloadUpThatGrowsWithoutTheOriginsSignature) {
  const auto four = by_author(*taken_over_manifest(Version{1}, 4, 10));
  announce(four, 1);
  key.lie(true);
  tell(growth(*four));
  EXPECT_EQ(worker.receiving(), PayloadId{});
  ASSERT_TRUE(last_said(Kind::kInstallFailed).has_install_failed());
  EXPECT_EQ(worker.intake().refused_manifests(), 1u);
}

// The store is making it the version in use.
TEST_F(SuspiciousWorkerTest, FinishesWhatIsWholeThoughItsEndIsToldAgainWrongly) {
  const auto whole = by_author(*manifest_of(Version{1}, 100));
  announce(whole, 1);
  worker.handle_payload_begun(now, Version{1}, RestoredPayload{chunk_digests(Version{1}, 100), ChunkSet(100, true)});
  run();
  wire::Message again;
  *again.mutable_growth() = growth_between(*whole, *whole);
  again.mutable_growth()->set_signature("another");
  tell(again);
  EXPECT_EQ(worker.receiving(), PayloadId{Version{1}});
  worker.handle_finished(now, Version{1}, Status(), std::chrono::seconds(0));
  run();
  EXPECT_EQ(worker.intake().installed_version(), Version{1});
}

/// Trusts as the stand-in does, until that key is revoked.
struct RevocableTrust final : ManifestTrust {
  [[nodiscard]] Status check(const Manifest& manifest) const override {
    if (revoked) return about(to_string(manifest.id()), fail(Errc::kNotAllowed, Op::kVerify, "its key is revoked"));
    return stand_in.check(manifest);
  }
  [[nodiscard]] Status check_stored(const Manifest& manifest) const override { return check(manifest); }

  sim::StandInTrust stand_in;
  bool revoked = false;
};

struct RevokedKeyTest : SuspiciousWorkerTest {
  RevokedKeyTest() {
    config.trust = trust;
    renew();
  }

  const std::shared_ptr<RevocableTrust> trust = std::make_shared<RevocableTrust>();
};

TEST_F(RevokedKeyTest, GivesUpWhatArrivesByAKeyThatIsRevokedMeanwhile) {
  announce(by_author(*manifest_of(Version{1}, 100)), 1);
  announce(by_author(*manifest_of(Version{2}, 100)), 2);
  ASSERT_EQ(begun, std::vector{Version{1}});
  trust->revoked = true;
  worker.handle_revocations(now, 1);
  run();
  EXPECT_EQ(worker.receiving(), PayloadId{});
  EXPECT_EQ(worker.intake().refused_manifests(), 2u);
  ASSERT_TRUE(last_said(Kind::kInstallFailed).has_install_failed());
  EXPECT_EQ(worker.last_error(), "cannot verify: version 1: its key is revoked");
  // Nor does it try again by what it was told then.
  now += std::chrono::minutes(1);
  worker.handle_timeout(now);
  run();
  EXPECT_EQ(begun, std::vector{Version{1}});
}

TEST_F(RevokedKeyTest, GoesOnWithWhatAnotherKeyVouchesFor) {
  announce(by_author(*manifest_of(Version{1}, 100)), 1);
  worker.handle_revocations(now, 1);
  run();
  EXPECT_EQ(worker.receiving(), PayloadId{Version{1}});
  EXPECT_EQ(worker.intake().refused_manifests(), 0u);
}

}  // namespace
}  // namespace weightcast
