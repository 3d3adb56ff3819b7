// One worker, spoken to message by message; whole fleets are in fleet_test.cpp.
#include "transport/core/worker/worker_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

struct WorkerCoreTest : testing::Test {
  WorkerConfig config = [] {
    WorkerConfig c;
    c.name = "w";
    c.origin_host = "origin";
    c.origin_port = 1;
    c.listen_port = 2;
    return c;
  }();
  WorkerCore worker{config};
  Instant now{1h};
  ConnId origin{};
  std::vector<action::Connect> dialled;
  std::vector<action::Send> said;
  std::vector<Version> begun;

  void run() {
    for (Action& action : drain([&] { return worker.poll_action(); })) {
      if (auto* connect = std::get_if<action::Connect>(&action)) dialled.push_back(*connect);
      if (auto* send = std::get_if<action::Send>(&action)) said.push_back(*send);
      if (auto* begin = std::get_if<action::BeginPayload>(&action)) begun.push_back(begin->manifest->version);
    }
  }
  void SetUp() override {
    worker.start(now);
    run();
    join();
  }
  void join() {
    origin = dialled.back().conn;
    worker.handle_connected(now, origin);
    wire::Message joined;
    joined.mutable_joined()->set_peer_id(5);
    tell(joined);
  }
  void lose_origin() {
    worker.handle_closed(now, origin, fail(Errc::kClosed, Op::kReceive, "reset"));
    now = *worker.poll_deadline();
    worker.handle_timeout(now);
    run();
  }
  void tell(const wire::Message& message) {
    worker.handle_message(now, origin, message);
    run();
  }
  void announce(std::shared_ptr<const Manifest> manifest, std::uint64_t epoch) {
    wire::Message message;
    *message.mutable_announce()->mutable_manifest() = manifest_to_wire(*manifest);
    wire::Assignment* assignment = message.mutable_announce()->mutable_assignment();
    assignment->set_epoch(epoch);
    set_payload(*assignment, manifest->version);
    assignment->add_stripes()->add_ancestors()->set_peer_id(0);
    assignment->add_stripe_weights(1);
    tell(message);
  }
  void announce(std::uint64_t version, std::uint64_t epoch) { announce(manifest_of(Version{version}, 100), epoch); }
  const wire::Message* last_said(wire::Message::KindCase kind) {
    for (auto send = said.rbegin(); send != said.rend(); ++send) {
      if (send->message.kind_case() == kind) return &send->message;
    }
    return nullptr;
  }
};

using Kind = wire::Message::KindCase;

TEST_F(WorkerCoreTest, TellsTheOriginAtOnceWhatItTakesUp) {
  announce(1, 1);
  ASSERT_NE(last_said(Kind::kHeartbeat), nullptr);
  EXPECT_EQ(last_said(Kind::kHeartbeat)->heartbeat().receiving().version(), 1u);
}

TEST_F(WorkerCoreTest, JoinsAgainWithTheVersionThatItIsInTheMiddleOf) {
  announce(1, 1);
  lose_origin();
  join();
  ASSERT_NE(last_said(Kind::kJoin), nullptr);
  EXPECT_EQ(last_said(Kind::kJoin)->join().receiving().version(), 1u);
}

TEST_F(WorkerCoreTest, WhatWaitedBeforeItJoinedAgainIsTakenUpAsItIsAnnouncedThen) {
  announce(1, 1);
  announce(2, 2);
  lose_origin();
  join();
  wire::Message gone;
  set_payload(*gone.mutable_not_available(), Version{1});
  tell(gone);
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
  wire::Message gone;
  set_payload(*gone.mutable_not_available(), Version{4});
  tell(gone);
  EXPECT_EQ(worker.receiving(), Version{3});
}

TEST_F(WorkerCoreTest, AfterAFailureOfItsDiskItTriesWhatWasAnnouncedLast) {
  announce(2, 1);
  announce(1, 2);
  announce(2, 3);
  ASSERT_EQ(worker.receiving(), Version{2});
  worker.handle_payload_begun(now, Version{2}, fail(Errc::kNoSpace, Op::kWrite, "the disk is full"));
  run();
  const Instant failed_at = now;
  for (int i = 0; i < 100 && worker.receiving() == kNoVersion; ++i) {
    now = std::max(now, *worker.poll_deadline());
    worker.handle_timeout(now);
    run();
  }
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
  for (int i = 0; i < 100 && worker.receiving() == kNoVersion; ++i) {
    now = std::max(now, *worker.poll_deadline());
    worker.handle_timeout(now);
    run();
  }
  EXPECT_EQ(worker.receiving(), Version{1});
  EXPECT_EQ(begun.size(), 2u);
  EXPECT_EQ(now - given_up_at, 1s);
}

TEST_F(WorkerCoreTest, VersionThatIsTakenOverAnewIsNotTakenForTheOneBefore) {
  // The origin was lost in the middle, and takes over what begins alike and may end otherwise.
  announce(taken_over_manifest(Version{1}, 8, 12), 1);
  announce(taken_over_manifest(Version{1}, 4, 12), 2);
  EXPECT_EQ(worker.receiving(), kNoVersion);
  for (int i = 0; i < 100 && worker.receiving() == kNoVersion; ++i) {
    now = std::max(now, *worker.poll_deadline());
    worker.handle_timeout(now);
    run();
  }
  EXPECT_EQ(worker.receiving(), Version{1});
  EXPECT_EQ(worker.holdings().at(Version{1}).manifest().chunk_count(), 4u);
}

TEST_F(WorkerCoreTest, VersionThatComesToNothingIsGivenUpAndSoIsOneThatWaits) {
  announce(taken_over_manifest(Version{1}, 8, 12), 1);
  wire::Message gone;
  set_payload(*gone.mutable_not_available(), Version{1});
  tell(gone);
  EXPECT_EQ(worker.receiving(), kNoVersion);
  EXPECT_TRUE(worker.holdings().empty());
  announce(2, 2);
  announce(taken_over_manifest(Version{3}, 8, 200), 3);
  set_payload(*gone.mutable_not_available(), Version{3});
  tell(gone);
  set_payload(*gone.mutable_not_available(), Version{2});
  tell(gone);
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
  ASSERT_NE(last_said(Kind::kProbed), nullptr);
  EXPECT_FALSE(last_said(Kind::kProbed)->probed().reached());
  tell(ask);
  worker.handle_connected(now, dialled.back().conn);
  run();
  EXPECT_EQ(last_said(Kind::kProbed)->probed().peer_id(), 9u);
  EXPECT_TRUE(last_said(Kind::kProbed)->probed().reached());
}

TEST_F(WorkerCoreTest, SaysHowMuchItHasSentOn) {
  announce(1, 1);
  RestoredPayload all{chunk_digests(Version{1}, 100), ChunkSet(100, true)};
  worker.handle_payload_begun(now, Version{1}, std::move(all));
  const ConnId child = worker.next_conn();
  worker.handle_accepted(now, child, "host");
  wire::Message message;
  message.mutable_hello()->set_protocol(kProtocolVersion);
  worker.handle_message(now, child, message);
  set_payload(*message.mutable_subscribe(), Version{1});
  worker.handle_message(now, child, message);
  worker.handle_chunk_sent(now, child);
  now += config.timeouts.heartbeat;
  worker.handle_timeout(now);
  run();
  EXPECT_EQ(last_said(Kind::kHeartbeat)->heartbeat().bytes_sent(), kChunkBytesMin);
}

TEST(WorkerCoreSingleCopy, ServesItsBaseUntilAPatchTakesItsPlace) {
  constexpr std::uint32_t kChunks = 100, kPatchChunks = 3;
  for (const bool single_copy : {false, true}) {
    WorkerConfig config;
    config.name = "w";
    config.single_copy = single_copy;
    WorkerCore worker{config};
    const Instant now{1h};
    worker.restore(manifest_of(Version{1}, kChunks), chunk_digests(Version{1}, kChunks));
    worker.start(now);
    const ConnId origin = only<action::Connect>(drain([&] { return worker.poll_action(); })).back().conn;
    worker.handle_connected(now, origin);
    wire::Message joined;
    joined.mutable_joined()->set_peer_id(5);
    worker.handle_message(now, origin, joined);

    Manifest patch = *manifest_of(Version{2}, kPatchChunks);
    patch.kind = PayloadKind::kPatch;
    patch.base_version = Version{1};
    wire::Message message;
    *message.mutable_announce()->mutable_manifest() = manifest_to_wire(patch);
    wire::Assignment* assignment = message.mutable_announce()->mutable_assignment();
    assignment->set_epoch(1);
    set_payload(*assignment, patch_of(Version{2}, Version{1}));
    assignment->add_stripes()->add_ancestors()->set_peer_id(0);
    assignment->add_stripe_weights(1);
    worker.handle_message(now, origin, message);
    EXPECT_EQ(worker.receiving(), patch.id());
    EXPECT_TRUE(worker.holdings().contains(Version{1}));
    worker.handle_payload_begun(now, patch.id(),
                                RestoredPayload{chunk_digests(Version{2}, kPatchChunks), ChunkSet(kPatchChunks, true)});
    EXPECT_EQ(only<action::FinishPayload>(drain([&] { return worker.poll_action(); })).size(), 1u);
    EXPECT_EQ(worker.holdings().contains(Version{1}), !single_copy);
  }
}

}  // namespace
}  // namespace weightcast
