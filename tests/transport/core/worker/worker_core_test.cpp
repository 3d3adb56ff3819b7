// One worker, spoken to message by message; whole fleets are in tests/sim/fleet_test.cpp.
#include "transport/core/worker/worker_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/worker/worker_core_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

TEST_F(WorkerCoreTest, TakesOverTheRunOfTheOriginThatItJoinedFirst) {
  EXPECT_EQ(last_said(Kind::kJoin).join().run_id(), 0u) << "it knows none";
  wire::Message joined;
  joined.mutable_joined()->set_run_id(7);
  worker.handle_message(now, origin, joined);
  const auto follow = only<action::FollowRun>(drain([&] { return worker.poll_action(); }));
  ASSERT_EQ(follow.size(), 1u);
  EXPECT_EQ(follow[0].run, RunId{7});
  EXPECT_FALSE(follow[0].anew);
  EXPECT_EQ(worker.run(), RunId{7});
  // Once is enough, whatever is said later.
  joined.mutable_joined()->set_run_id(8);
  worker.handle_message(now, origin, joined);
  EXPECT_TRUE(only<action::FollowRun>(drain([&] { return worker.poll_action(); })).empty());
  EXPECT_EQ(worker.run(), RunId{7});
  lose_origin();
  join();
  EXPECT_EQ(last_said(Kind::kJoin).join().run_id(), 7u);
}

TEST_F(WorkerCoreTest, SpeaksWhatItsOriginSaysAndNothingThatItHasNotOffered) {
  EXPECT_EQ(last_said(Kind::kJoin).join().protocol(), kProtocolVersionMin) << "origins before version 8 compare it";
  EXPECT_EQ(last_said(Kind::kJoin).join().protocol_max(), kProtocolVersion);
  EXPECT_EQ(worker.protocol(), kProtocolVersionMin) << "the origin has said nothing";
  const auto joined_with = [&](std::uint32_t protocol) {
    lose_origin();
    origin = dialled.back().conn;
    worker.handle_connected(now, origin);
    wire::Message joined;
    joined.mutable_joined()->set_protocol(protocol);
    tell(joined);
    return worker.protocol();
  };
  EXPECT_EQ(joined_with(kProtocolVersion), kProtocolVersion);
  EXPECT_EQ(joined_with(0), kProtocolVersionMin) << "another connection is another agreement";
  EXPECT_EQ(joined_with(kProtocolVersion + 1), kProtocolVersionMin);
  EXPECT_EQ(joined_with(kProtocolVersionMin - 1), kProtocolVersionMin);
}

TEST_F(WorkerCoreTest, BeginsAnotherRunWhenItsOriginSaysSoAndTriesAgainIfTheDiskRefuses) {
  const auto told = [&](std::uint64_t run) {
    wire::Message message;
    message.mutable_new_run()->set_run_id(run);
    worker.handle_message(now, origin, message);
    return only<action::FollowRun>(drain([&] { return worker.poll_action(); }));
  };
  EXPECT_TRUE(told(0).empty()) << "that is none";
  const auto follow = told(9);
  ASSERT_EQ(follow.size(), 1u);
  EXPECT_EQ(follow[0].run, RunId{9});
  EXPECT_TRUE(follow[0].anew);
  EXPECT_TRUE(told(9).empty()) << "it is on its way";
  worker.handle_run_not_followed(now, fail(Errc::kNoSpace, Op::kWrite, "full"));
  now += 10s;
  worker.handle_timeout(now);
  EXPECT_EQ(only<action::FollowRun>(drain([&] { return worker.poll_action(); })).size(), 1u);
}

TEST_F(WorkerCoreTest, OneThatReadsAnArchiveAsksForItsFirstVersionAsItIs) {
  EXPECT_FALSE(last_said(Kind::kJoin).join().base_unusable());
  config.archive = ArchiveLimits{};
  renew();
  start();
  EXPECT_TRUE(last_said(Kind::kJoin).join().base_unusable());
  renew();
  restore(6);
  start();
  EXPECT_FALSE(last_said(Kind::kJoin).join().base_unusable()) << "it takes patches";
}

struct WorkerWhoseOriginIsDamaged : WorkerCoreTest {
  std::vector<action::PutDigestPart> put;

  /// Until `done`: makes what is dialled, and has the origin answer each subscription with a chunk that is damaged.
  void serve_damage(Version version, const std::function<bool()>& done) {
    for (int i = 0; i < 1000 && !done(); ++i) {
      const ConnId conn = dialled.back().conn;
      if (conn != origin) {
        worker.handle_connected(now, conn);
        wire::Message part;
        *part.mutable_digest_part() = part_of(version, 100);
        worker.handle_message(now, conn, part);
        worker.handle_chunk(now, conn, chunk_of(version, ChunkIndex{7}, true));
        run();
      }
      if (const auto due = worker.poll_deadline()) now = std::max(now, *due);
      worker.handle_message(now, origin, wire::Message());
      worker.handle_timeout(now);
      run();
    }
  }
};

TEST_F(WorkerWhoseOriginIsDamaged, SaysSoAfterAFewTriesAndGoesOnWithWhatIsAnnouncedNext) {
  announce(1, 1);
  worker.handle_payload_begun(now, Version{1}, RestoredPayload{});
  run();
  announce(2, 2);
  ASSERT_EQ(worker.receiving(), Version{1}) << "what it receives it finishes first, as long as it can";
  const std::size_t dialled_before = dialled.size();
  serve_damage(Version{1}, [&] { return worker.receiving() == Version{2}; });
  EXPECT_EQ(worker.receiving(), Version{2});
  EXPECT_LT(dialled.size() - dialled_before, 10u);
  EXPECT_EQ(last_said(Kind::kInstallFailed).install_failed().code(), std::uint32_t(Errc::kCorrupt));
  EXPECT_THAT(worker.last_error(), testing::HasSubstr("damaged"));
}

TEST_F(WorkerWhoseOriginIsDamaged, WaitsBeforeItTriesTheSameAgain) {
  announce(1, 1);
  worker.handle_payload_begun(now, Version{1}, RestoredPayload{});
  run();
  serve_damage(Version{1}, [&] { return worker.receiving() == kNoVersion; });
  EXPECT_EQ(worker.receiving(), kNoVersion);
  announce(2, 2);
  EXPECT_EQ(worker.receiving(), Version{2}) << "but not for what is new";
}

TEST_F(WorkerCoreTest, DigestPartThatComesBeforeTheStoreHasBegunIsNotKept) {
  announce(1, 1);
  const ConnId parent = dialled.back().conn;
  worker.handle_connected(now, parent);
  wire::Message part;
  *part.mutable_digest_part() = part_of(Version{1}, 100);
  worker.handle_message(now, parent, part);
  const auto put = [&] { return only<action::PutDigestPart>(drain([&] { return worker.poll_action(); })).size(); };
  EXPECT_EQ(put(), 0u) << "the store has no place for it yet, and would miss it in the end";
  worker.handle_payload_begun(now, Version{1}, RestoredPayload{});
  worker.handle_message(now, parent, part);
  EXPECT_EQ(put(), 1u);
}

TEST_F(WorkerCoreTest, SnapshotLargerThanItTakesIsRefusedBeforeRoomIsMadeForIt) {
  auto huge = std::make_shared<Manifest>(*taken_over_manifest(Version{1}, 0, 8));
  huge->files = {{"model.safetensors", config.snapshot_bytes_max + 1}};
  announce(huge, 1);
  EXPECT_TRUE(begun.empty());
  EXPECT_EQ(last_said(Kind::kInstallFailed).install_failed().code(), std::uint32_t(Errc::kTooLarge));
  EXPECT_THAT(worker.last_error(), testing::HasSubstr("--snapshot-max"));
}

TEST_F(WorkerCoreTest, PatchWhoseVersionIsNotHereIsForgottenAndTakenAnew) {
  const PayloadId step = patch_of(Version{2}, Version{1});
  const auto patch = growing_manifest(step, 8, false);
  renew();
  restore(1);
  worker.restore_patch(patch, chunk_digests(Version{2}, 8));
  start();
  EXPECT_FALSE(worker.holdings().contains(step));
  announce(patch, 1);
  EXPECT_EQ(worker.receiving(), step);
}

TEST_F(WorkerCoreTest, ServesNobodyWhatItFindsDamagedOnItsDisk) {
  renew();
  restore(1);
  start();
  const ConnId child = accept_child();
  wire::Message damaged;
  set_payload(*damaged.mutable_chunk_damaged(), Version{1});
  damaged.mutable_chunk_damaged()->set_chunk(7);
  worker.handle_message(now, child, damaged);
  const auto checks = only<action::CheckChunk>(drain([&] { return worker.poll_action(); }));
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].chunk, ChunkIndex{7});
  worker.handle_chunk_checked(now, Version{1}, ChunkIndex{7}, content_digest_of({}));
  EXPECT_TRUE(worker.holdings().empty());
  EXPECT_EQ(worker.installed_version(), Version{1}) << "there is nothing better";
  EXPECT_THAT(worker.last_error(), testing::HasSubstr("version 1, chunk 7"));
}

TEST_F(WorkerCoreTest, JoinsAnewWithWhatIsLeftWhenItsVersionIsLost) {
  renew();
  restore(6), restore(7);
  start();
  EXPECT_EQ(last_said(Kind::kJoin).join().installed_version(), 7u);

  const Error why = fail(Errc::kCorrupt, Op::kSync, "version 7: the disk lost some of its bytes");
  worker.handle_version_lost(now, Version{7}, manifest_of(Version{6}, 100), why);
  run();
  EXPECT_EQ(worker.installed_version(), Version{6});
  EXPECT_EQ(worker.holdings().count(Version{7}), 0u);
  EXPECT_EQ(worker.holdings().count(Version{6}), 1u);
  EXPECT_EQ(closed, std::vector{origin});
  now = *worker.poll_deadline();
  const std::size_t dialled_before = dialled.size();
  worker.handle_timeout(now);
  run();
  ASSERT_EQ(dialled.size(), dialled_before + 1);
  join();
  EXPECT_EQ(last_said(Kind::kJoin).join().installed_version(), 6u);

  // One that is not installed is only served no more.
  worker.handle_version_lost(now, Version{5}, manifest_of(Version{6}, 100), why);
  run();
  EXPECT_EQ(worker.installed_version(), Version{6});
  EXPECT_EQ(closed.size(), 1u);
  worker.handle_version_lost(now, Version{6}, nullptr, why);
  EXPECT_EQ(worker.installed_version(), kNoVersion);
  EXPECT_TRUE(worker.holdings().empty());
}

// Else both would wait for ever: the origin has assigned the patch, and the worker has dropped it.
TEST_F(WorkerCoreTest, PatchOnAnotherVersionThanIsInstalledIsAnsweredWithWhatIsInstalled) {
  renew();
  restore(7);
  start();
  said.clear();
  announce(growing_manifest(patch_of(Version{8}, Version{6}), 8, false), 1);
  EXPECT_EQ(payload_of(last_said(Kind::kInstalled).installed()).version, Version{7});
}

TEST_F(WorkerCoreTest, TellsTheOriginAtOnceWhatItTakesUp) {
  announce(1, 1);
  EXPECT_EQ(last_said(Kind::kHeartbeat).heartbeat().receiving().version(), 1u);
}

TEST_F(WorkerCoreTest, JoinsAgainWithTheVersionThatItIsInTheMiddleOf) {
  announce(1, 1);
  lose_origin();
  join();
  EXPECT_EQ(last_said(Kind::kJoin).join().receiving().version(), 1u);
}

// The first word may have been lost with its connection. Joining says what is installed, but not how.
TEST_F(WorkerCoreTest, SaysAgainHowItsVersionCameWhenItJoinsAgain) {
  announce(2, 1);
  now += 2s;
  worker.handle_payload_begun(now, Version{2}, RestoredPayload{chunk_digests(Version{2}, 100), ChunkSet(100, true)});
  now += 1s;
  worker.handle_finished(now, Version{2}, Status(), 250ms);
  run();
  const std::string phases = last_said(Kind::kInstalled).installed().phases().SerializeAsString();
  EXPECT_EQ(last_said(Kind::kInstalled).installed().phases().asking_s(), 2);
  EXPECT_EQ(last_said(Kind::kInstalled).installed().phases().switching_s(), 0.25);
  said.clear();
  lose_origin();
  join();
  EXPECT_EQ(last_said(Kind::kInstalled).installed().phases().SerializeAsString(), phases);
}

TEST_F(WorkerCoreTest, SaysHowLongAfterTheSwitchAnEngineTookTheVersion) {
  EXPECT_FALSE(worker.handle_taken(now, kNoVersion));
  announce(2, 1);
  worker.handle_payload_begun(now, Version{2}, RestoredPayload{chunk_digests(Version{2}, 100), ChunkSet(100, true)});
  worker.handle_finished(now, Version{2}, Status(), 250ms);
  run();
  said.clear();
  now += 500ms;
  EXPECT_FALSE(worker.handle_taken(now, Version{1})) << "another than the one in use";
  EXPECT_TRUE(worker.handle_taken(now, Version{2}));
  run();
  EXPECT_EQ(last_said(Kind::kHeartbeat).heartbeat().taken_version(), 2u) << "at once";
  EXPECT_EQ(last_said(Kind::kHeartbeat).heartbeat().taken_after_s(), 0.5);
  now += 1s;
  EXPECT_FALSE(worker.handle_taken(now, Version{2})) << "the first engine alone counts";
  said.clear();
  lose_origin();
  join();
  worker.handle_timeout(now);
  run();
  EXPECT_EQ(last_said(Kind::kHeartbeat).heartbeat().taken_after_s(), 0.5) << "the first word may have been lost";
  announce(3, 2);
  worker.handle_payload_begun(now, Version{3}, RestoredPayload{chunk_digests(Version{3}, 100), ChunkSet(100, true)});
  worker.handle_finished(now, Version{3}, Status(), 0s);
  now += 10s;
  worker.handle_timeout(now);
  run();
  EXPECT_EQ(last_said(Kind::kHeartbeat).heartbeat().taken_version(), 0u) << "nobody has taken this one";
}

TEST_F(WorkerCoreTest, CountsFromTheFirstTimeThatAVersionWasAnnounced) {
  announce(2, 1);
  now += 1s;
  announce(3, 1);
  now += 1s;
  announce(3, 2);
  worker.handle_payload_begun(now, Version{2}, RestoredPayload{chunk_digests(Version{2}, 100), ChunkSet(100, true)});
  now += 1s;
  worker.handle_finished(now, Version{2}, Status(), 0s);
  run();
  worker.handle_payload_begun(now, Version{3}, RestoredPayload{chunk_digests(Version{3}, 100), ChunkSet(100, true)});
  worker.handle_finished(now, Version{3}, Status(), 0s);
  run();
  EXPECT_EQ(payload_of(last_said(Kind::kInstalled).installed()), PayloadId(Version{3}));
  EXPECT_EQ(last_said(Kind::kInstalled).installed().phases().waiting_s(), 2);
}

TEST(AnnouncedVersions, KeepTheOneThatArrivesHoweverManyFollow) {
  AnnouncedVersions versions;
  for (std::uint64_t version = 1; version <= 100; ++version) {
    versions.handle_announced(Instant(std::chrono::seconds(version)), Version{version}, Version{1});
  }
  EXPECT_EQ(versions.find(Version{1})->since, Instant(1s));
  EXPECT_EQ(versions.find(Version{100})->since, Instant(100s));
  EXPECT_FALSE(versions.find(Version{2}).has_value());
  versions.handle_given_up(Version{100}, 2s);
  versions.handle_announced(Instant(200s), Version{100}, Version{1});
  EXPECT_EQ(versions.find(Version{100})->since, Instant(100s)) << "the first time counts";
  EXPECT_EQ(versions.find(Version{100})->given_up, 2s);
  versions.handle_installed(Version{99});
  EXPECT_FALSE(versions.find(Version{1}).has_value());
  versions.forget(Version{100});
  EXPECT_FALSE(versions.find(Version{100}).has_value());
}

TEST_F(WorkerCoreTest, WhatWaitedBeforeItJoinedAgainIsTakenUpAsItIsAnnouncedThen) {
  announce(1, 1);
  announce(2, 2);
  lose_origin();
  join();
  withdraw(1);
  EXPECT_EQ(worker.receiving(), Version{1}) << "there is nothing else, yet";
  announce(3, 1);  // of an origin that has restarted, and counts anew
  EXPECT_EQ(worker.receiving(), Version{3});
  EXPECT_THAT(begun, testing::ElementsAre(Version{1}, Version{3}));
  EXPECT_EQ(dialled.back().host, "origin") << "it has somebody to get it from";
}

TEST_F(WorkerCoreTest, OlderVersionIsTakenUpOnlyIfTheOneThatArrivesIsNoMore) {
  announce(4, 1);
  announce(3, 2);
  EXPECT_EQ(worker.receiving(), Version{4});
  withdraw(4);
  EXPECT_EQ(worker.receiving(), Version{3});
}

// The store is making it the version in use, and the next one must build on that.
TEST_F(WorkerCoreTest, WhatIsBeingFinishedIsInstalledThoughTheOriginHasItNoMore) {
  announce(2, 1);
  announce(3, 2);
  worker.handle_payload_begun(now, Version{2}, RestoredPayload{chunk_digests(Version{2}, 100), ChunkSet(100, true)});
  run();
  withdraw(2);
  announce(4, 3);
  EXPECT_EQ(worker.receiving(), Version{2});
  worker.handle_chunk_stored(now, Version{2}, ChunkIndex{0},
                             fail(Errc::kNoSpace, Op::kWrite, "a write that came twice"));
  run();
  EXPECT_EQ(worker.receiving(), Version{2});
  worker.handle_finished(now, Version{2}, Status(), 0s);
  run();
  EXPECT_EQ(payload_of(last_said(Kind::kInstalled).installed()), PayloadId(Version{2}));
  EXPECT_EQ(worker.receiving(), Version{4});
  EXPECT_THAT(begun, testing::ElementsAre(Version{2}, Version{4}));
}

TEST_F(WorkerCoreTest, AfterAFailureOfItsDiskItTriesWhatWasAnnouncedLast) {
  announce(2, 1);
  announce(1, 2);
  announce(2, 3);
  ASSERT_EQ(worker.receiving(), Version{2});
  worker.handle_payload_begun(now, Version{2}, fail(Errc::kNoSpace, Op::kWrite, "the disk is full"));
  run();
  const Instant failed_at = now;
  run_until_receiving();
  EXPECT_EQ(worker.receiving(), Version{2});
  EXPECT_THAT(begun, testing::ElementsAre(Version{2}, Version{2}));
  EXPECT_EQ(now - failed_at, 10s);
}

TEST_F(WorkerCoreTest, ConnectionThatDoesNotSayWhoItIsIsClosed) {
  const ConnId silent = worker.next_conn();
  worker.handle_accepted(now, silent, "host");
  const Instant accepted_at = now;
  while (now - accepted_at < 2 * config.timeouts.greeting) {
    now = std::max(now, *worker.poll_deadline());
    worker.handle_timeout(now);
    if (!only<action::Close>(drain([&] { return worker.poll_action(); })).empty()) break;
    wire::Message ack;
    ack.mutable_heartbeat_ack();
    worker.handle_message(now, origin, ack);
  }
  EXPECT_EQ(now - accepted_at, config.timeouts.greeting);
}

TEST_F(WorkerCoreTest, OtherBytesUnderTheSameNumberReplaceWhatIsArriving) {
  announce(1, 1);
  auto other = std::make_shared<Manifest>(*manifest_of(Version{1}, 100));
  other->snapshot_digest.bytes[0] ^= std::byte{1};
  announce(other, 2);
  EXPECT_EQ(worker.receiving(), kNoVersion) << "the disk is still busy with the old ones";
  ASSERT_TRUE(worker.poll_deadline());
  const Instant given_up_at = now;
  run_until_receiving();
  EXPECT_EQ(worker.receiving(), Version{1});
  EXPECT_EQ(begun.size(), 2u);
  EXPECT_EQ(now - given_up_at, 1s);
}

TEST_F(WorkerCoreTest, VersionThatIsTakenOverAnewIsNotTakenForTheOneBefore) {
  // The origin was lost in the middle, and takes over what begins alike and may end otherwise.
  announce(taken_over_manifest(Version{1}, 8, 12), 1);
  announce(taken_over_manifest(Version{1}, 4, 12), 2);
  EXPECT_EQ(worker.receiving(), kNoVersion);
  run_until_receiving();
  EXPECT_EQ(worker.receiving(), Version{1});
  EXPECT_EQ(worker.holdings().at(Version{1}).manifest().chunk_count(), 4u);
}

TEST_F(WorkerCoreTest, VersionThatComesToNothingIsGivenUpAndSoIsOneThatWaits) {
  announce(taken_over_manifest(Version{1}, 8, 12), 1);
  withdraw(1);
  EXPECT_EQ(worker.receiving(), kNoVersion);
  EXPECT_TRUE(worker.holdings().empty());
  announce(2, 2);
  announce(taken_over_manifest(Version{3}, 8, 200), 3);
  withdraw(3);
  withdraw(2);
  EXPECT_EQ(worker.receiving(), Version{2}) << "there is nothing else to go on to";
}

TEST_F(WorkerCoreTest, DialsWhomTheOriginAsksAboutAndSaysHowItWent) {
  wire::Message ask;
  ask.mutable_probe()->set_peer_id(9);
  ask.mutable_probe()->mutable_address()->set_host("there");
  ask.mutable_probe()->mutable_address()->set_port(70000);
  const std::size_t before = dialled.size();
  tell(ask);
  EXPECT_EQ(dialled.size(), before) << "no such port";
  ask.mutable_probe()->mutable_address()->set_port(700);
  tell(ask);
  ASSERT_EQ(dialled.size(), before + 1);
  worker.handle_closed(now, dialled.back().conn, fail(Errc::kClosed, Op::kConnect, "refused"));
  run();
  ASSERT_TRUE(last_said(Kind::kProbed).has_probed());
  EXPECT_FALSE(last_said(Kind::kProbed).probed().reached());
  tell(ask);
  worker.handle_connected(now, dialled.back().conn);
  run();
  EXPECT_EQ(last_said(Kind::kProbed).probed().peer_id(), 9u);
  EXPECT_TRUE(last_said(Kind::kProbed).probed().reached());
}

TEST_F(WorkerCoreTest, SaysHowMuchItHasSentOn) {
  announce(1, 1);
  RestoredPayload all{chunk_digests(Version{1}, 100), ChunkSet(100, true)};
  worker.handle_payload_begun(now, Version{1}, std::move(all));
  const ConnId child = accept_child();
  worker.handle_message(now, child, subscribe_message(Version{1}));
  worker.handle_chunk_sent(now, child);
  now += config.timeouts.heartbeat;
  worker.handle_timeout(now);
  run();
  EXPECT_EQ(last_said(Kind::kHeartbeat).heartbeat().bytes_sent(), kChunkBytesMin);
}

TEST_F(WorkerCoreTest, ServesItsBaseUntilAPatchTakesItsPlaceWhereThatIsTheOnlyCopy) {
  constexpr std::uint32_t kPatchChunks = 3;
  const PayloadId patch = patch_of(Version{2}, Version{1});
  for (const bool single_copy : {false, true}) {
    config.single_copy = single_copy;
    renew();
    restore(1);
    start();
    announce(growing_manifest(patch, kPatchChunks, false), 1);
    EXPECT_EQ(worker.receiving(), patch);
    EXPECT_TRUE(worker.holdings().contains(Version{1}));
    worker.handle_payload_begun(now, patch,
                                RestoredPayload{chunk_digests(Version{2}, kPatchChunks), ChunkSet(kPatchChunks, true)});
    EXPECT_EQ(only<action::FinishPayload>(drain([&] { return worker.poll_action(); })).size(), 1u);
    EXPECT_EQ(worker.holdings().contains(Version{1}), !single_copy);
  }
}

}  // namespace
}  // namespace weightcast
