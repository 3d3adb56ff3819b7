#include "transport/core/worker/acceptance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/stand_in_keys.h"
#include "tests/result_matchers.h"
#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

constexpr RunId kRun{0xa};

struct AcceptanceTest : testing::Test {
  WorkerConfig config;
  sim::StandInSigner signer;

  Manifest manifest(std::uint64_t version, RunId run = kRun) {
    Manifest m = *manifest_of(Version{version}, 8);
    m.model_id = "a";
    m.run = run;
    return m;
  }
  Manifest signed_manifest(std::uint64_t version) {
    Manifest m = manifest(version);
    m.signature = signer.sign(signed_statement(m));
    return m;
  }
};

TEST_F(AcceptanceTest, TakesOnlyWhatTheOriginSignedWhereSignaturesAreAskedFor) {
  config.trust = std::make_shared<sim::StandInTrust>();
  const Acceptance acceptance(config);
  Manifest good = signed_manifest(7);
  EXPECT_TRUE(acceptance.check(good, kRun).has_value());
  EXPECT_EQ(acceptance.check(manifest(7), kRun).error().code, Errc::kNotAllowed) << "not signed";
  good.snapshot_digest.bytes[0] ^= std::byte{1};
  EXPECT_EQ(acceptance.check(good, kRun).error().code, Errc::kNotAllowed);
  signer.lie(true);
  EXPECT_EQ(acceptance.check(signed_manifest(7), kRun).error().code, Errc::kNotAllowed);
}

TEST_F(AcceptanceTest, RefusesAnotherModelThanItWasTold) {
  const Acceptance any(config);
  EXPECT_TRUE(any.check(manifest(7), kRun).has_value());
  config.model_id = "b";
  const Acceptance other(config);
  EXPECT_THAT(other.check(manifest(7), kRun).error().detail, HasSubstr("of model 'a'"));
  config.model_id = "a";
  const Acceptance same(config);
  EXPECT_TRUE(same.check(manifest(7), kRun).has_value());
  Manifest unnamed = manifest(7);
  unnamed.model_id.clear();
  EXPECT_FALSE(same.check(unnamed, kRun).has_value());
}

TEST_F(AcceptanceTest, RefusesAnotherRunThanItFollows) {
  const Acceptance acceptance(config);
  EXPECT_THAT(acceptance.check(manifest(7, RunId{0xb}), kRun).error().detail, HasSubstr("follows run"));
  EXPECT_TRUE(acceptance.check(manifest(7, RunId{0xb}), kNoRun).has_value()) << "it follows none yet";
}

TEST_F(AcceptanceTest, RefusesOlderVersionsThanItHadEvenAfterTheyAreGone) {
  Acceptance acceptance(config);
  acceptance.note_durable(manifest(7), kRun);
  acceptance.note_durable(manifest(9, RunId{0xb}), RunId{0xb});
  EXPECT_TRUE(acceptance.check(manifest(7), kRun).has_value()) << "it may have lost that one";
  EXPECT_THAT(acceptance.check(manifest(6), kRun), FailsWith(Errc::kNotAllowed, "version 7"));
  Manifest patch = manifest(6);
  patch.kind = PayloadKind::kPatch;
  patch.base_version = Version{5};
  EXPECT_EQ(acceptance.check(patch, kRun).error().code, Errc::kWrongBase) << "the origin then sends the latest whole";
  EXPECT_TRUE(acceptance.check(manifest(8), kRun).has_value());

  config.accepted = acceptance.accepted();
  const Acceptance restarted(config);
  EXPECT_FALSE(restarted.check(manifest(6), kRun).has_value());
  EXPECT_FALSE(restarted.check(manifest(8, RunId{0xb}), RunId{0xb}).has_value());
}

TEST_F(AcceptanceTest, RemembersTheRunsThatWereFollowedLast) {
  Acceptance acceptance(config);
  for (std::uint64_t run = 1; run <= Acceptance::kRunsMax + 3; ++run) {
    acceptance.note_durable(manifest(5, RunId{run}), RunId{run});
  }
  EXPECT_EQ(acceptance.accepted().size(), Acceptance::kRunsMax);
  EXPECT_EQ(acceptance.accepted().back(), (AcceptedVersion{RunId{Acceptance::kRunsMax + 3}, Version{5}}));
  EXPECT_EQ(acceptance.accepted().front().run, RunId{4});
}

TEST_F(AcceptanceTest, RefusesCodeAndPickle) {
  const Acceptance acceptance(config);
  for (const char* name : {"modeling_qwen.py", "pytorch_model.bin", "model.pt", "model.pth", "model.pkl", "run.sh",
                           "model.safetensors.py", "safetensors", "so", "x.json.exe"}) {
    Manifest m = manifest(7);
    m.files.push_back({name, 0});
    const Status refused = acceptance.check(m, kRun);
    ASSERT_FALSE(refused.has_value()) << name;
    EXPECT_THAT(refused.error().detail, HasSubstr(name));
  }
  for (const char* name : {"config.json", "tokenizer.model", "merges.txt", "chat_template.jinja", "a.safetensors"}) {
    Manifest m = manifest(7);
    m.files.push_back({name, 0});
    EXPECT_TRUE(acceptance.check(m, kRun).has_value()) << name;
  }
}

TEST_F(AcceptanceTest, TakesFileTreesOnlyWhereItWasTold) {
  Manifest tree = manifest(7);
  tree.file_tree = true;
  tree.files.push_back({"bin/tool.sh", 0, true});
  const Acceptance careful(config);
  EXPECT_THAT(careful.check(tree, kRun), FailsWith(Errc::kNotAllowed, "--files"));
  tree.files.pop_back();
  EXPECT_FALSE(careful.check(tree, kRun).has_value()) << "whatever is in it";
  config.takes_files = true;
  const Acceptance willing(config);
  EXPECT_TRUE(willing.check(tree, kRun).has_value());
  EXPECT_TRUE(willing.check(manifest(7), kRun).has_value());
}

}  // namespace
}  // namespace weightcast
