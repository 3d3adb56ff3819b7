#include "transport/core/origin/origin_payloads.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

constexpr Version kOld{1}, kNew{2};
const PayloadId kStep = patch_of(kNew, kOld);

struct OriginPayloadsTest : testing::Test {
  OriginConfig config;
  Holdings holdings;
  ActionQueue actions;
  OriginPayloads payloads{config, holdings, actions};

  void SetUp() override {
    for (const Version version : {kOld, kNew}) {
      ASSERT_TRUE(payloads.restore(manifest_of(version, 100), chunk_digests(version, 100)));
    }
    payloads.make(kStep);
  }
  static MadePayload made(std::uint32_t chunks, bool open) {
    return {growing_manifest(kStep, chunks, open), chunk_digests(kNew, chunks)};
  }
  void begin() { ASSERT_TRUE(payloads.begin_made(made(0, true).manifest).has_value()); }
};

TEST_F(OriginPayloadsTest, PatchBeginsOpenOnceAndOnlyIfItWasAskedFor) {
  EXPECT_EQ(payloads.begin_made(made(8, false).manifest).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(payloads.begin_made(growing_manifest(patch_of(Version{3}, kNew), 0)).error().code, Errc::kNotFound);
  begin();
  EXPECT_EQ(payloads.begin_made(made(0, true).manifest).error().code, Errc::kAlreadyExists);
}

TEST_F(OriginPayloadsTest, GrowsToWhatContinuesItAndToNothingElse) {
  EXPECT_EQ(payloads.grow(made(4, true)).error().code, Errc::kNotFound) << "it was not begun";
  begin();
  ASSERT_TRUE(payloads.grow(made(8, true)).has_value());
  EXPECT_EQ(holdings.at(kStep).verified().count(), 8u);
  const auto shrunk = payloads.grow(made(4, true));
  ASSERT_FALSE(shrunk.has_value());
  EXPECT_EQ(shrunk.error().code, Errc::kInvalidArgument);
  EXPECT_NE(shrunk.error().detail.find("does not continue"), std::string::npos);
}

TEST_F(OriginPayloadsTest, DigestsThatAreMissingOrWrongAreRefused) {
  begin();
  MadePayload without = made(8, true);
  without.chunk_digests.resize(4);
  EXPECT_EQ(payloads.grow(without).error().code, Errc::kInvalidArgument);
  MadePayload wrong = {manifest_of(Version{3}, 100), chunk_digests(kNew, 100)};
  EXPECT_EQ(payloads.complete_version(wrong).error().code, Errc::kInvalidArgument);
  EXPECT_FALSE(payloads.holds(Version{3}));
}

TEST_F(OriginPayloadsTest, EndsWithAManifestThatIsNotOpen) {
  begin();
  EXPECT_EQ(payloads.complete(made(8, true)).error().code, Errc::kInvalidArgument);
  const auto told = payloads.complete(made(8, false));
  ASSERT_TRUE(told.has_value());
  ASSERT_TRUE(told->has_value()) << "who was told of its beginning hears of its end";
  EXPECT_FALSE((*told)->growth().open());
  EXPECT_TRUE(holdings.at(kStep).complete());
}

// Publications that come faster than patches are made: whenever something can be forgotten, a patch is being made.
TEST_F(OriginPayloadsTest, OldPatchesAreNotNeededWhileTheNextOneIsBeingMade) {
  config.anchor_interval = 4;
  payloads.end_making(kStep);
  for (std::uint64_t v = 3; v <= 40; ++v) {
    ASSERT_TRUE(payloads.restore(manifest_of(Version{v}, 100), chunk_digests(Version{v}, 100)));
    const PayloadId step = patch_of(Version{v}, Version{v - 1});
    payloads.make(step);
    for (const PayloadId old : payloads.unneeded([](PayloadId) { return false; })) payloads.forget(old);
    const auto patches = std::ranges::count_if(holdings, [](const auto& held) { return held.first.is_patch(); });
    EXPECT_EQ(patches, std::min<std::uint64_t>(v - 3, 4)) << "what leads to version " << v - 1;
    ASSERT_TRUE(payloads.complete({growing_manifest(step, 1, false), chunk_digests(Version{v}, 1)}).has_value());
    EXPECT_TRUE(payloads.end_making(step));
  }
}

}  // namespace
}  // namespace weightcast
