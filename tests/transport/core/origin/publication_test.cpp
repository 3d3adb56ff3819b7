#include "transport/core/origin/publication.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/result_matchers.h"
#include "tests/transport/core/payload_fixture.h"
#include "transport/core/origin/retention.h"

namespace weightcast {
namespace {

constexpr Version kOld{1}, kNew{2};
const PayloadId kStep = patch_of(kNew, kOld);

struct PublicationTest : testing::Test {
  OriginConfig config;
  Membership members;
  ActionQueue actions;
  Timeouts timeouts;
  Holdings holdings;
  Uploads uploads{timeouts, holdings, actions};
  RateProbes rates{members, actions, Rate{}};
  FaultAttribution faults{members, uploads, actions, rates};
  PublicationContext context{config, members, holdings, uploads, actions, rates, faults};
  std::map<Version, Publication> publications;
  Publication& publication = at(kNew);
  Instant now{std::chrono::hours(1)};

  Publication& at(Version version) { return publications.try_emplace(version, context, version).first->second; }
  void restore(Version version) {
    ASSERT_TRUE(at(version).restore(manifest_of(version, 100), chunk_digests(version, 100)));
  }
  void SetUp() override {
    restore(kOld);
    restore(kNew);
    publication.make(now, kStep);
  }
  static MadePayload made(std::uint32_t chunks, bool open) {
    return {growing_manifest(kStep, chunks, open), chunk_digests(kNew, chunks)};
  }
  void begin() { ASSERT_TRUE(publication.begin_made(made(0, true).manifest).has_value()); }
};

TEST_F(PublicationTest, PatchBeginsOpenOnceAndOnlyIfItWasAskedFor) {
  EXPECT_EQ(publication.begin_made(made(8, false).manifest).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(at(Version{3}).begin_made(growing_manifest(patch_of(Version{3}, kNew), 0)).error().code, Errc::kNotFound);
  begin();
  EXPECT_EQ(publication.begin_made(made(0, true).manifest).error().code, Errc::kAlreadyExists);
}

TEST_F(PublicationTest, GrowsToWhatContinuesItAndToNothingElse) {
  EXPECT_EQ(publication.grow(made(4, true)).error().code, Errc::kNotFound) << "it was not begun";
  begin();
  ASSERT_TRUE(publication.grow(made(8, true)).has_value());
  EXPECT_EQ(holdings.at(kStep).verified().count(), 8u);
  EXPECT_THAT(publication.grow(made(4, true)), FailsWith(Errc::kInvalidArgument, "does not continue"));
}

TEST_F(PublicationTest, DigestsThatAreMissingOrWrongAreRefused) {
  begin();
  MadePayload without = made(8, true);
  without.chunk_digests.resize(4);
  EXPECT_EQ(publication.grow(without).error().code, Errc::kInvalidArgument);
  const MadePayload wrong = {manifest_of(Version{3}, 100), chunk_digests(kNew, 100)};
  EXPECT_EQ(at(Version{3}).publish(wrong).error().code, Errc::kInvalidArgument);
  EXPECT_FALSE(context.holds(Version{3}));
  EXPECT_TRUE(at(Version{3}).over()) << "nothing is left of it";
}

TEST_F(PublicationTest, EndsWithAManifestThatIsNotOpenAndWhoWasToldOfItHearsSo) {
  begin();
  Member& member = members.by_name("a");
  members.connect(member, ConnId{7});
  publication.plan_of(kStep).handle_resumed(member.id);
  EXPECT_EQ(publication.hold_made(made(8, true)).error().code, Errc::kInvalidArgument);
  static_cast<void>(drain([&] { return actions.poll(); }));
  ASSERT_TRUE(publication.hold_made(made(8, false)).has_value());
  const auto told = only<action::Send>(drain([&] { return actions.poll(); }));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].conn, member.conn);
  ASSERT_TRUE(told[0].message.has_growth());
  EXPECT_FALSE(told[0].message.growth().open());
  EXPECT_TRUE(holdings.at(kStep).complete());
}

TEST_F(PublicationTest, OutlivesItsVersionAsLongAsAPatchToItHasAPlanOrIsMade) {
  publication.forget(kNew);
  EXPECT_FALSE(publication.in_store());
  EXPECT_FALSE(context.holds(kNew));
  EXPECT_FALSE(publication.over()) << "the patch is being made";
  ASSERT_TRUE(publication.hold_made(made(8, false)).has_value());
  EXPECT_TRUE(publication.end_making(kStep));
  static_cast<void>(publication.plan_of(kStep));
  EXPECT_FALSE(publication.over()) << "the patch may lead on to a newer version";
  publication.forget(kStep);
  EXPECT_TRUE(publication.over());
}

// Publications that come faster than patches are made: whenever something can be forgotten, a patch is being made.
TEST_F(PublicationTest, OldPatchesAreNotNeededWhileTheNextOneIsBeingMade) {
  config.anchor_interval = 4;
  publication.end_making(kStep);
  for (std::uint64_t v = 3; v <= 40; ++v) {
    restore(Version{v});
    const PayloadId step = patch_of(Version{v}, Version{v - 1});
    at(Version{v}).make(now, step);
    const auto nobody = [](PayloadId) { return false; };
    for (const PayloadId old : unneeded_payloads(config, holdings, publications, Version{v}, nobody)) {
      at(old.version).forget(old);
    }
    const auto patches = std::ranges::count_if(holdings, [](const auto& held) { return held.first.is_patch(); });
    EXPECT_EQ(patches, std::min<std::uint64_t>(v - 3, 4)) << "what leads to version " << v - 1;
    ASSERT_TRUE(at(Version{v}).hold_made({growing_manifest(step, 1, false), chunk_digests(Version{v}, 1)}).has_value());
    EXPECT_TRUE(at(Version{v}).end_making(step));
  }
}

}  // namespace
}  // namespace weightcast
