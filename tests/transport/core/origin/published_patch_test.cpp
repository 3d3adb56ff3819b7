// Versions that are published by their patches, complete or while these are made.
#include "transport/core/origin/publications.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/origin/origin_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// Version 1 is published whole, what follows by patches.
struct PublishedPatchTest : OriginCoreTest {
  static MadePayload patch_made(std::uint64_t version, std::uint64_t base) {
    Manifest manifest = *growing_manifest(patch_of(Version{version}, Version{base}), 4, false);
    manifest.snapshot_digest = snapshot_digest(Version{version});
    return {std::make_shared<const Manifest>(std::move(manifest)), chunk_digests(Version{version}, 4)};
  }
  static MadePayload full_made(std::uint64_t version, std::uint32_t chunks = 12) {
    return {taken_over_manifest(Version{version}, chunks, 12), chunk_digests(Version{version}, chunks)};
  }
  void publish_patch(std::uint64_t version, std::uint64_t base) {
    origin.handle_publish(now, now, patch_made(version, base));
    run();
  }
  /// So many versions in a row, so that no full payload of an older one is left.
  void publish_patches(std::uint64_t last) {
    publish(1);
    for (std::uint64_t version = 2; version <= last; ++version) publish_patch(version, version - 1);
  }
  void note(const Action& action) override {
    if (const auto* make = std::get_if<action::MakePayload>(&action)) asked.push_back(make->payload);
  }

  std::vector<PayloadId> asked;
};

TEST_F(PublishedPatchTest, VersionIsItsPatchUntilSomebodyNeedsItWhole) {
  publish_patches(4);
  EXPECT_EQ(origin.publications().latest(), Version{4});
  EXPECT_FALSE(origin.holdings().contains(Version{4}));
  const std::vector<PayloadId> kept = origin.retained();
  EXPECT_THAT(kept, testing::Contains(PayloadId(Version{4}))) << "its files are what a full payload is made of";
  EXPECT_THAT(kept, testing::Not(testing::Contains(PayloadId(Version{1}))));
  EXPECT_TRUE(asked.empty());

  join("a");
  ASSERT_EQ(asked, std::vector<PayloadId>{Version{4}});
  EXPECT_TRUE(heard_by("a", Kind::kAnnounce).empty());
  origin.handle_payload_begun(now, full_made(4, 0).manifest);
  run();
  EXPECT_EQ(announced_to("a"), std::vector<PayloadId>{Version{4}}) << "while it is made";
  origin.handle_payload_grown(now, full_made(4, 8));
  run();
  EXPECT_EQ(heard_by("a", Kind::kGrowth).size(), 1u);
  origin.handle_payload_made(now, Version{4}, full_made(4));
  run();
  EXPECT_EQ(heard_by("a", Kind::kGrowth).back().growth().snapshot_digest().size(), Checksum::kBytes);
  EXPECT_TRUE(origin.holdings().at(Version{4}).complete());
  installed("a", 4);
  EXPECT_EQ(member("a").installed, Version{4});
  publish_patch(5, 4);
  EXPECT_EQ(announced_to("a").back(), patch_of(Version{5}, Version{4}));
}

// Two older patches that others receive stay, so the full payload that one worker is assigned does not.
TEST_F(PublishedPatchTest, WhoseAssignedPayloadIsForgottenIsAssignedAnotherAtOnce) {
  for (const char* name : {"a", "b", "c"}) join(name);
  publish(1);
  installed("b", 1), installed("c", 1);
  publish_patch(2, 1);
  const auto keep_for = [&](const std::string& name, std::uint64_t version) {
    publish_patch(version, version - 1);
    const MadePayload folded = patch_made(version, 1);
    origin.restore_patch(folded.manifest, folded.chunk_digests);
    wire::Message message;
    payload_to_wire(folded.manifest->id(), *message.mutable_heartbeat()->mutable_receiving());
    tell(name, message);
  };
  keep_for("b", 3), keep_for("c", 4);
  receives("a", 1, 5);
  ASSERT_TRUE(origin.holdings().contains(Version{1}));
  ASSERT_TRUE(asked.empty());
  publish_patch(5, 4);
  ASSERT_FALSE(origin.holdings().contains(Version{1}));
  ASSERT_EQ(asked, std::vector<PayloadId>{Version{5}});
  origin.handle_payload_made(now, Version{5}, full_made(5));
  run();
  EXPECT_EQ(announced_to("a").back(), PayloadId(Version{5}));
}

TEST_F(PublishedPatchTest, WhatTheDiskRefusedToMakeIsTriedAgainLessAndLessOften) {
  publish_patches(4);
  join("a");
  const auto fail_with = [&](Errc code) {
    origin.handle_payload_made(now, Version{4}, fail(code, Op::kWrite, "the disk is full"));
    run();
  };
  Duration pause = Publications::kMakeAgainAfter;
  for (std::size_t tries = 1; tries <= 8; ++tries) {
    ASSERT_EQ(asked, std::vector<PayloadId>(tries, Version{4}));
    fail_with(Errc::kNoSpace);
    ASSERT_EQ(origin.publications().poll_deadline(), now + pause) << tries;
    now += pause;
    run();
    pause = std::min(2 * pause, Publications::kMakeAgainMax);
  }
  EXPECT_EQ(pause, Publications::kMakeAgainMax);
  fail_with(Errc::kUnsupported);
  EXPECT_FALSE(origin.publications().poll_deadline()) << "that does not get better";
  publish_patch(5, 4);
  EXPECT_EQ(asked.back(), PayloadId(Version{5}));
}

TEST_F(PublishedPatchTest, VersionWhoseHashIsAnotherIsWithdrawn) {
  publish_patches(4);
  join("a");
  MadePayload other = full_made(4);
  Manifest manifest = *other.manifest;
  manifest.snapshot_digest = snapshot_digest(Version{77});
  other.manifest = std::make_shared<const Manifest>(manifest);
  origin.handle_payload_begun(now, full_made(4, 0).manifest);
  origin.handle_payload_made(now, Version{4}, other);
  run();
  EXPECT_EQ(origin.publications().latest(), Version{3});
  EXPECT_THAT(origin.last_error(), HasSubstr("not those that were published"));
  EXPECT_EQ(heard_by("a", Kind::kNotAvailable).size(), 1u);
  EXPECT_EQ(origin.publications().check_version(Version{4}).error().code, Errc::kAlreadyExists);
}

TEST_F(PublishedPatchTest, VersionThatCannotBeReadIsWithdrawnAndOneThatIsTooLargeIsNot) {
  publish_patches(4);
  join("a");
  origin.handle_payload_made(now, Version{4}, fail(Errc::kTooLarge, Op::kPublish, "its manifest cannot be sent"));
  run();
  EXPECT_EQ(origin.publications().latest(), Version{4});
  publish_patch(5, 4);
  ASSERT_EQ(asked.back(), PayloadId(Version{5}));
  origin.handle_payload_made(now, Version{5}, fail(Errc::kIo, Op::kRead, "the disk does not answer"));
  run();
  EXPECT_EQ(origin.publications().latest(), Version{4});
  EXPECT_THAT(origin.last_error(), HasSubstr("the disk does not answer"));
  EXPECT_EQ(asked.back(), PayloadId(Version{4})) << "for the one before";
}

TEST_F(PublishedPatchTest, VersionThatTheDiskLostIsWithdrawnThoughItsFullPayloadWasNeverMade) {
  publish_patches(4);
  origin.handle_version_lost(now, Version{4}, nullptr, fail(Errc::kCorrupt, Op::kSync, "the disk refused its bytes"));
  run();
  EXPECT_EQ(origin.publications().latest(), Version{3});
  origin.handle_payload_made(now, Version{4}, full_made(4));
  EXPECT_FALSE(origin.holdings().contains(Version{4}));
}

TEST_F(PublishedPatchTest, FullPayloadOfAVersionThatWasWithdrawnMeanwhileIsNotHeld) {
  publish_patches(4);
  join("a");
  origin.handle_version_lost(now, Version{4}, nullptr, fail(Errc::kCorrupt, Op::kSync, "the disk refused its bytes"));
  origin.handle_payload_begun(now, full_made(4, 0).manifest);
  EXPECT_FALSE(origin.holdings().contains(Version{4}));
  origin.handle_payload_made(now, Version{4}, full_made(4));
  run();
  EXPECT_FALSE(origin.holdings().contains(Version{4}));
  EXPECT_EQ(origin.publications().latest(), Version{3});
}

TEST_F(PublishedPatchTest, PatchFromAnotherVersionThanTheLatestIsNotPublished) {
  publish_patches(3);
  publish_patch(4, 2);
  EXPECT_EQ(origin.publications().latest(), Version{3});
  MadePayload packed = patch_made(4, 3);
  Manifest manifest = *packed.manifest;
  manifest.kind = PayloadKind::kPacked, manifest.base_version = kNoVersion;
  packed.manifest = std::make_shared<const Manifest>(manifest);
  origin.handle_publish(now, now, packed);
  EXPECT_EQ(origin.publications().latest(), Version{3});
  origin.handle_publish_begun(now, taken_over_manifest(Version{4}, 0, 12));
  publish_patch(4, 3);
  EXPECT_EQ(origin.publications().latest(), Version{3}) << "who said that it is whole gives it whole";
  publish_patch(4, 3);
  EXPECT_EQ(origin.publications().latest(), Version{4});
}

/// Version 2 is published by its patch, which is told of while it is made.
struct GrowingPatchTest : PublishedPatchTest {
  static MadePayload patch(std::uint32_t chunks, bool open) {
    Manifest manifest = *growing_manifest(kPatch, chunks, open);
    manifest.snapshot_digest = snapshot_digest(Version{2});
    return {std::make_shared<const Manifest>(std::move(manifest)), chunk_digests(Version{2}, chunks)};
  }
  GrowingPatchTest() {
    join("a");
    publish(1);
    installed("a", 1);
    origin.handle_publish_begun(now, patch(0, true).manifest);
    run();
  }

  static constexpr PayloadId kPatch = patch_of(Version{2}, Version{1});
};

TEST_F(GrowingPatchTest, IsSentToWhoHasTheBase) {
  EXPECT_EQ(origin.publications().latest(), Version{2});
  EXPECT_EQ(announced_to("a"), (std::vector<PayloadId>{Version{1}, kPatch}));
  join("late");
  EXPECT_EQ(announced_to("late"), std::vector<PayloadId>{Version{1}}) << "from there the patch leads on";
  origin.handle_publish_grown(now, patch(kGrowingPartChunks, true));
  run();
  EXPECT_EQ(heard_by("a", Kind::kGrowth).size(), 1u);
  origin.handle_publish(now, now, patch(2 * kGrowingPartChunks, false));
  run();
  ASSERT_EQ(heard_by("a", Kind::kGrowth).size(), 2u);
  EXPECT_FALSE(heard_by("a", Kind::kGrowth).back().growth().open());
  EXPECT_TRUE(origin.holdings().at(kPatch).complete());
  EXPECT_TRUE(origin.history().all().at(Version{2}).encoding().ended_at);
  EXPECT_TRUE(asked.empty()) << "neither another patch nor the full payload";
}

TEST_F(GrowingPatchTest, IsNotBelievedToBeInstalled) {
  tell("a", installed_message(kPatch, snapshot_digest(Version{2})));
  EXPECT_EQ(member("a").installed, Version{1});
}

TEST_F(GrowingPatchTest, IsWithdrawnWhereItTurnsOutTooLarge) {
  origin.handle_publish_grown(now, patch(kGrowingPartChunks, true));
  origin.handle_publish_failed(now, Version{2}, "it is too large");
  run();
  EXPECT_EQ(origin.publications().latest(), Version{1});
  EXPECT_FALSE(origin.holdings().contains(kPatch));
  EXPECT_EQ(gone_for("a"), std::vector<PayloadId>{kPatch});
  publish(2);
  EXPECT_EQ(origin.publications().latest(), Version{2}) << "under the same number";
}

TEST_F(GrowingPatchTest, EndsAsWhatItBegan) {
  publish(2);
  EXPECT_EQ(origin.publications().latest(), Version{1}) << "who said that it is a patch gives a patch";
  EXPECT_FALSE(origin.holdings().contains(kPatch));
}

TEST_F(PublishedPatchTest, AfterARestartAVersionIsWhatItsPatchSays) {
  OriginCore again(config);
  const MadePayload third = patch_made(3, 2), fourth = patch_made(4, 3);
  again.restore(third.manifest, {});
  again.restore(fourth.manifest, {});
  again.restore_patch(fourth.manifest, fourth.chunk_digests);
  again.start(now);
  EXPECT_EQ(again.publications().latest(), Version{4});
  EXPECT_EQ(again.holdings().size(), 1u);
  const ConnId conn = again.next_conn();
  again.handle_accepted(now, conn, "host");
  wire::Message hello = join_message_with("a", 3, snapshot_digest(Version{3}));
  hello.mutable_join()->set_run_id(config.run.value);
  again.handle_message(now, conn, hello);
  again.handle_timeout(now);
  std::vector<PayloadId> announced;
  for (const auto& send : only<action::Send>(drain([&] { return again.poll_action(); }))) {
    if (send.message.has_announce())
      announced.push_back(payload_from_wire(send.message.announce().manifest().payload()));
  }
  EXPECT_EQ(announced, std::vector<PayloadId>{patch_of(Version{4}, Version{3})});
}

TEST_F(PublishedPatchTest, HistorySaysWhatWasMadeOfIt) {
  publish_patches(3);
  join("a");
  now += 1s;
  origin.handle_payload_begun(now, full_made(3, 0).manifest);
  now += 2s;
  origin.handle_payload_made(now, Version{3}, full_made(3));
  run();
  const PublicationRecord& record = origin.history().all().at(Version{3});
  EXPECT_EQ(record.snapshot_bytes, 64 * kMiB);
  EXPECT_FALSE(record.taking_over.began_at);
  EXPECT_TRUE(record.encoding().ended_at);
  EXPECT_EQ(record.hashing().lasted(), 3s);
  EXPECT_EQ(record.making_of(Version{3}).lasted(), 3s);
  EXPECT_EQ(record.kind, PayloadKind::kFull) << "most get it so";
}

}  // namespace
}  // namespace weightcast
