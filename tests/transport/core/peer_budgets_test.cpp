// What one peer may have a node do: a test of each bound, by messages alone. Bitmaps are in edge/uploads_test.cpp,
// checks of chunks in edge/self_check_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/limits.h"
#include "tests/transport/core/origin/origin_fixture.h"
#include "transport/core/budget.h"
#include "transport/core/worker/worker_core.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(Budget, GivesItsBurstAtOnceAndThenItsRate) {
  Budget budget(10, 3);
  Instant now{1h};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.spend(now));
  EXPECT_FALSE(budget.spend(now));
  now += 99ms;
  EXPECT_FALSE(budget.spend(now));
  now += 2ms;
  EXPECT_TRUE(budget.spend(now));
  EXPECT_FALSE(budget.spend(now - 1h)) << "a time that goes back gives nothing";
  now += 1h;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.spend(now));
  EXPECT_FALSE(budget.spend(now)) << "rest does not add up beyond the burst";
}

struct PeerBudgetsTest : OriginCoreTest {
  static wire::Message ack() {
    wire::Message message;
    message.mutable_heartbeat_ack();
    return message;
  }
  bool was_refused(ConnId conn) { return !said[conn].empty() && said[conn].back().has_bye(); }
};

TEST_F(PeerBudgetsTest, MemberThatSendsTooManyMessagesIsLostAndNamed) {
  join("a"), join("b");
  for (double i = 0; i < kPeerMessagesBurst - 2; ++i) origin.handle_message(now, conns.at("a"), ack());
  run();
  ASSERT_TRUE(member("a").connected());
  for (int i = 0; i < 3; ++i) origin.handle_message(now, conns.at("a"), ack());
  run();
  EXPECT_FALSE(member("a").connected());
  EXPECT_TRUE(was_refused(conns.at("a")));
  EXPECT_THAT(member("a").offence, HasSubstr("more messages than"));
  EXPECT_TRUE(member("b").connected());
}

TEST_F(PeerBudgetsTest, MemberThatSendsAsManyMessagesAsItMayForAMinuteStays) {
  join("a");
  for (int second = 0; second < 60; ++second) {
    now += 1s;
    for (double i = 0; i < kPeerMessagesPerSecond; ++i) origin.handle_message(now, conns.at("a"), ack());
  }
  run();
  EXPECT_TRUE(member("a").connected());
}

TEST_F(PeerBudgetsTest, ChildThatSendsAWorkerTooManyMessagesIsClosed) {
  WorkerCore worker(worker_config());
  worker.start(now);
  const ConnId child = worker.next_conn();
  worker.handle_accepted(now, child, "host");
  worker.handle_message(now, child, hello_message("child"));
  std::size_t closed = 0;
  for (double i = 0; i < kPeerMessagesBurst && closed == 0; ++i) {
    worker.handle_message(now, child, ack());
    for (const auto& close : only<action::Close>(drain([&] { return worker.poll_action(); }))) {
      closed += close.conn == child ? 1 : 0;
    }
  }
  EXPECT_EQ(closed, 1u);
}

TEST_F(PeerBudgetsTest, ReportsBeyondTheirBudgetAreIgnored) {
  join("a"), join("b"), join("c");
  publish(1);
  ASSERT_EQ(parent_of("b"), member("a").id);
  // Of a parent that is not its own: these change nothing, but each costs a look.
  for (double i = 0; i < kReportsBurst; ++i) complain("b", "c", wire::FAULT_KIND_CORRUPT);
  complain("b", "a", wire::FAULT_KIND_CORRUPT);
  EXPECT_EQ(origin.faults().complaints_of(member("a").id), 0u);
  now += 1s;
  complain("b", "a", wire::FAULT_KIND_CORRUPT);
  EXPECT_EQ(origin.faults().complaints_of(member("a").id), 1u) << "and is heard again a moment later";
}

TEST_F(PeerBudgetsTest, NameThatJoinsAgainAndAgainHasToWaitAndIsNamed) {
  for (double i = 0; i < kJoinsBurst; ++i) {
    join("a");
    ASSERT_FALSE(was_refused(conns.at("a"))) << i;
    lose("a");
  }
  join("a");
  EXPECT_TRUE(was_refused(conns.at("a")));
  EXPECT_FALSE(member("a").connected());
  EXPECT_THAT(member("a").offence, HasSubstr("again and again"));
  now += from_seconds(1 / kJoinsPerSecond);
  join("a");
  EXPECT_TRUE(member("a").connected());
}

TEST_F(PeerBudgetsTest, ChildHasNoMoreThanItsConnections) {
  join("a");
  const auto greet = [&](const std::string& name) { return hear(hello_message(name, member("a").id.value)); };
  std::vector<ConnId> of_a;
  for (std::size_t i = 0; i < kConnectionsPerPeerMax; ++i) of_a.push_back(greet("a"));
  for (const ConnId conn : of_a) ASSERT_FALSE(was_refused(conn));
  EXPECT_TRUE(was_refused(greet("a")));
  EXPECT_FALSE(was_refused(greet("b"))) << "others have theirs";
  origin.handle_closed(now, of_a.front(), fail(Errc::kClosed, Op::kReceive, "gone"));
  EXPECT_FALSE(was_refused(greet("a")));
}

struct PlacesTest : PeerBudgetsTest {
  ConnId subscribe(const std::string& name, std::uint64_t version = 1) {
    const ConnId conn = hear(hello_message(name));
    origin.handle_message(now, conn, subscribe_message(Version{version}));
    drain_actions();
    return conn;
  }
  void note(const Action& action) override {
    if (const auto* chunk = std::get_if<action::SendChunk>(&action)) ++chunks[chunk->conn];
  }
  /// Until all deadlines up to then have passed.
  void wait(Duration span) {
    const Instant until = now + span;
    for (auto due = origin.poll_deadline(); due && *due <= until; due = origin.poll_deadline()) {
      now = std::max(now, *due);
      origin.handle_timeout(now);
      drain_actions();
    }
    now = until;
  }
  std::map<ConnId, int> chunks;
};

TEST_F(PlacesTest, OriginServesWhomItHasToldOfThePayload) {
  join("a");
  publish(1);
  const ConnId child = subscribe("a");
  EXPECT_GT(chunks[child], 0);
}

TEST_F(PlacesTest, OriginServesNobodyWhoHasNotJoinedAndNamesWhoTriesAgainAndAgain) {
  join("a");
  publish(1);
  for (double i = 0; i < 2 * kJoinsBurst; ++i) {
    const ConnId stray = subscribe("stray");
    EXPECT_FALSE(was_refused(stray)) << "it may join yet";
    wait(config.timeouts.unknown_version);
    EXPECT_TRUE(was_refused(stray));
    EXPECT_EQ(chunks[stray], 0);
    if (i == 0) {
      EXPECT_EQ(member("stray").offence, "") << "once is nobody's fault";
    }
  }
  EXPECT_THAT(member("stray").offence, HasSubstr("no place"));
  wait(2 * Membership::kKeepStranger);
  EXPECT_FALSE(origin.members().id_of("stray")) << "and is forgotten like any stranger";
}

// A child of an origin that has started again dials it for chunks and to join at the same time.
TEST_F(PlacesTest, WhoSubscribesBeforeItHasJoinedAgainIsServedOnceItHas) {
  publish(1);
  const ConnId child = subscribe("a");
  EXPECT_EQ(chunks[child], 0);
  join("a");
  wait(config.timeouts.unknown_version / 2);
  EXPECT_GT(chunks[child], 0);
  EXPECT_FALSE(was_refused(child));
}

struct ControlTest : PeerBudgetsTest {
  Status hear(ConnId conn, const wire::Message& message) {
    const Status taken = origin.handle_control(now, conn, message.SerializeAsString());
    run();
    return taken;
  }
};

TEST_F(ControlTest, MemberThatSaysWhatOnlyAnOriginSaysIsLostAndNamedAndNothingOfItIsParsed) {
  join("a");
  wire::Message announce;
  announce.mutable_announce()->mutable_manifest()->set_part_digests(std::string(1'000'000, 'x'));
  std::string body = announce.SerializeAsString();
  body.back() = '\xff';
  EXPECT_TRUE(origin.handle_control(now, conns.at("a"), body).has_value());
  run();
  EXPECT_TRUE(was_refused(conns.at("a")));
  EXPECT_FALSE(member("a").connected());
  EXPECT_THAT(member("a").offence, HasSubstr("no worker sends"));
}

TEST_F(ControlTest, WhatALaterReleaseMaySayIsIgnored) {
  join("a");
  std::string body("\xfa\x7f\x03xyz", 6);  // field 2047, of three bytes
  EXPECT_TRUE(origin.handle_control(now, conns.at("a"), body).has_value());
  run();
  EXPECT_TRUE(member("a").connected());
  EXPECT_EQ(member("a").offence, "");
  body.pop_back();
  EXPECT_EQ(origin.handle_control(now, conns.at("a"), body).error().code, Errc::kCorrupt);
}

TEST_F(ControlTest, WhatAWorkerSaysElsewhereIsIgnoredAndCounts) {
  join("a");
  for (double i = 0; i < kPeerMessagesBurst + 1 && member("a").connected(); ++i) {
    EXPECT_TRUE(
        origin.handle_control(now, conns.at("a"), subscribe_message(Version{1}).SerializeAsString()).has_value());
  }
  run();
  EXPECT_FALSE(member("a").connected());
  EXPECT_THAT(member("a").offence, HasSubstr("more messages than"));
}

TEST_F(ControlTest, FailuresThatAMemberReportsAreBounded) {
  join("a");
  publish(1);
  wire::Message failed;
  set_payload(*failed.mutable_install_failed(), Version{1});
  failed.mutable_install_failed()->set_detail("no room");
  std::size_t lines = 0;
  for (double i = 0; i < 2 * kReportsBurst; ++i) {
    origin.handle_message(now, conns.at("a"), failed);
    lines += only<action::Log>(drain([&] { return origin.poll_action(); })).size();
  }
  EXPECT_LE(double(lines), kReportsBurst + 10);
  EXPECT_GT(lines, 0u);
}

}  // namespace
}  // namespace weightcast
