// Who may say what, on connections whose other end has proven who it is. The table is in docs/PROTOCOL.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/origin/origin_fixture.h"
#include "tests/transport/core/worker/worker_core_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

PeerIdentity identity(Role role, const std::string& name, unsigned key = 1) {
  PeerIdentity made;
  made.role = role;
  made.name = name;
  made.key.bytes[0] = std::byte(key);
  return made;
}

struct OriginIdentity : OriginCoreTest {
  [[nodiscard]] bool joined(ConnId conn) { return said_on(conn, Kind::kJoined) != nullptr; }
  const wire::Message* said_on(ConnId conn, Kind kind) {
    for (const wire::Message& message : said[conn]) {
      if (message.kind_case() == kind) return &message;
    }
    return nullptr;
  }
};

TEST_F(OriginIdentity, AWorkerJoinsUnderItsOwnNameOnly) {
  EXPECT_TRUE(joined(hear(identity(Role::kWorker, "a"), join_message("a"))));
  const ConnId other = hear(identity(Role::kWorker, "b"), join_message("c"));
  EXPECT_FALSE(joined(other));
  EXPECT_THAT(refusal(other), HasSubstr("its certificate is for worker b"));
  EXPECT_EQ(origin.members().all().size(), 1u) << "nothing is remembered of a name that nobody has";
}

TEST_F(OriginIdentity, WhatAMemberDoesOnAnotherConnectionIsHeldAgainstIt) {
  ASSERT_TRUE(joined(hear(identity(Role::kWorker, "a"), join_message("a"))));
  ASSERT_TRUE(joined(hear(identity(Role::kWorker, "b"), join_message("b"))));
  (void)hear(identity(Role::kWorker, "a"), join_message("b"));
  EXPECT_THAT(member("a").offence, HasSubstr("tried to join as b"));
  (void)hear(identity(Role::kWorker, "b"), subscribe_message(Version{1}));
  EXPECT_THAT(member("b").offence, HasSubstr("without saying who it is"));
  (void)hear(identity(Role::kWorker, "a"), hello_message("a"));
  EXPECT_THAT(member("a").offence, HasSubstr("tried to join as b")) << "a child that says hello does nothing wrong";
}

TEST_F(OriginIdentity, AnOriginsKeysDoNotJoin) {
  const ConnId conn = hear(identity(Role::kOrigin, "a"), join_message("a"));
  EXPECT_FALSE(joined(conn));
  EXPECT_THAT(refusal(conn), HasSubstr("its certificate is for origin a"));
}

TEST_F(OriginIdentity, ANameIsTakenOverByItsOwnKeysOnlyHoweverSilentItIs) {
  const ConnId first = hear(identity(Role::kWorker, "a", 1), join_message("a"));
  ASSERT_TRUE(joined(first));
  now += 30s;  // far beyond two heartbeats
  wire::Message second = join_message("a");
  second.mutable_join()->set_incarnation(2);
  const ConnId impostor = hear(identity(Role::kWorker, "a", 2), second);
  EXPECT_FALSE(joined(impostor));
  EXPECT_THAT(refusal(impostor), HasSubstr("other keys"));
  EXPECT_EQ(member("a").conn, first);
  const ConnId restarted = hear(identity(Role::kWorker, "a", 1), second);
  EXPECT_TRUE(joined(restarted));
  EXPECT_EQ(member("a").conn, restarted);
}

TEST_F(OriginIdentity, ANameWhoseWorkerIsGoneMayComeBackWithNewKeys) {
  const ConnId first = hear(identity(Role::kWorker, "a", 1), join_message("a"));
  origin.handle_closed(now, first, fail(Errc::kClosed, Op::kReceive, "gone"));
  run();
  EXPECT_TRUE(joined(hear(identity(Role::kWorker, "a", 2), join_message("a"))));
}

TEST_F(OriginIdentity, AChildIsItsCertificatesWorkerWhateverNumberItSays) {
  hear(identity(Role::kWorker, "a"), join_message("a"));
  hear(identity(Role::kWorker, "b"), join_message("b"));
  publish(1);
  const ConnId child = hear(identity(Role::kWorker, "a"), hello_message("a", member("b").id.value));
  EXPECT_EQ(refusal(child), "");
  origin.handle_message(now, child, subscribe_message(Version{1}, {1}));
  for (int i = 0; i < 3; ++i) origin.handle_chunk_sent(now, child);
  EXPECT_EQ(origin.children(), std::vector<std::string>{"a"});
  const ConnId false_name = hear(identity(Role::kWorker, "a"), hello_message("b"));
  EXPECT_THAT(refusal(false_name), HasSubstr("its certificate is for worker a"));
  const ConnId false_role = hear(identity(Role::kOrigin, "a"), hello_message("a"));
  EXPECT_THAT(refusal(false_role), HasSubstr("its certificate is for origin a"));
}

TEST_F(OriginIdentity, AConnectionIsIntroducedOnce) {
  const ConnId child = hear(identity(Role::kWorker, "a"), hello_message("a"));
  origin.handle_message(now, child, hello_message("a", 9));
  run();
  EXPECT_THAT(refusal(child), HasSubstr("introduced already"));
}

wire::Message heartbeat_message(std::uint64_t revocations) {
  wire::Message message;
  message.mutable_heartbeat()->set_revocations(revocations);
  return message;
}

TEST_F(OriginIdentity, SendsTheListOfRevokedKeysOnceToWhoKnowsAnOlderOne) {
  const auto lists_sent = [&](ConnId conn) {
    return std::ranges::count_if(said[conn], [](const wire::Message& message) { return message.has_revocations(); });
  };
  const ConnId behind = hear(identity(Role::kWorker, "a"), join_message("a"));
  const ConnId ahead = hear(identity(Role::kWorker, "b"), join_message("b"));
  const auto beat = [&] {
    origin.handle_message(now, behind, heartbeat_message(0));
    origin.handle_message(now, ahead, heartbeat_message(4));
    run();
  };
  beat();
  EXPECT_EQ(lists_sent(behind), 0) << "there is none";
  origin.set_revocations(4, "the list");
  beat();
  beat();
  EXPECT_EQ(lists_sent(behind), 1);
  EXPECT_EQ(said_on(behind, Kind::kRevocations)->revocations().list(), "the list");
  EXPECT_EQ(lists_sent(ahead), 0);
  origin.set_revocations(5, "the next list");
  beat();
  EXPECT_EQ(lists_sent(behind), 2);
  EXPECT_EQ(lists_sent(ahead), 1);
  // On a new connection nothing is known of what came on the last one.
  const ConnId again = hear(identity(Role::kWorker, "a"), join_message("a"));
  origin.handle_message(now, again, heartbeat_message(0));
  run();
  EXPECT_EQ(lists_sent(again), 1);
}

/// The host that an origin dials when a worker from 192.0.2.9 says that it listens on `given`; and what it warns of.
std::pair<std::string, std::string> host_dialled(const std::string& given, const std::optional<PeerIdentity>& peer) {
  OriginConfig config;
  config.addresses_allowed = {"10.7.*"};
  OriginCore origin(config);
  const Instant now{1h};
  origin.start(now);
  const ConnId conn = origin.next_conn();
  origin.handle_accepted(now, conn, "192.0.2.9", peer);
  wire::Message join = OriginCoreTest::join_message("a");
  join.mutable_join()->mutable_listen()->set_host(given);
  origin.handle_message(now, conn, join);
  std::string host, warning;
  for (const Action& action : drain([&] { return origin.poll_action(); })) {
    if (const auto* connect = std::get_if<action::Connect>(&action)) host = connect->host;
    const auto* log = std::get_if<action::Log>(&action);
    if (log != nullptr && log->level == action::Log::Level::kWarning) warning = log->text;
  }
  return {host, warning};
}

TEST(OriginAddresses, AWorkerIsDialledWhereItComesFromOrWhereItsKeysOrTheOperatorSay) {
  PeerIdentity worker = identity(Role::kWorker, "a");
  worker.addresses = {"gpu-1.example", "198.51.100.1"};
  struct Case {
    std::string given, dialled;
  };
  for (const Case& c : {Case{"", "192.0.2.9"},
                        {"0.0.0.0", "192.0.2.9"},
                        {"192.0.2.9", "192.0.2.9"},
                        {"gpu-1.example", "gpu-1.example"},
                        {"198.51.100.1", "198.51.100.1"},
                        {"10.7.3.4", "10.7.3.4"}}) {
    EXPECT_EQ(host_dialled(c.given, worker), std::pair(c.dialled, std::string())) << c.given;
  }
  for (const std::string victim : {"198.51.100.2", "victim.example", "10.77.0.1", "127.0.0.1", "localhost"}) {
    for (const auto& peer : {std::optional(worker), std::optional<PeerIdentity>()}) {
      const auto [host, warning] = host_dialled(victim, peer);
      EXPECT_EQ(host, "192.0.2.9") << victim;
      EXPECT_THAT(warning, HasSubstr("--allow-address " + victim));
    }
  }
}

wire::Message enroll_message() {
  wire::Message message;
  message.mutable_enroll()->set_protocol(kProtocolVersion);
  message.mutable_enroll()->set_token_id("an id");
  return message;
}

struct OriginEnrolment : OriginIdentity {
  /// Whom the origin wants enrolled.
  std::vector<ConnId> asked;

  void note(const Action& action) override {
    if (const auto* enroll = std::get_if<action::Enroll>(&action)) asked.push_back(enroll->conn);
  }
  void say(ConnId conn, const wire::Message& message) {
    origin.handle_message(now, conn, message);
    run();
  }
};

TEST_F(OriginEnrolment, AStrangerGetsItsCertificatesOrWhatIsWrong) {
  const ConnId good = hear(identity(Role::kStranger, ""), enroll_message());
  const ConnId bad = hear(identity(Role::kStranger, ""), enroll_message());
  const ConnId unlucky = hear(identity(Role::kStranger, ""), enroll_message());
  ASSERT_EQ(asked, (std::vector<ConnId>{good, bad, unlucky}));
  origin.handle_enrolled(good, EnrolledWorker{"w1", "the certificates"});
  origin.handle_enrolled(bad, fail(Errc::kNotAllowed, Op::kVerify, "no such token"));
  origin.handle_enrolled(unlucky, fail(Errc::kIo, Op::kWrite, "/a/path: disk on fire"));
  run();
  ASSERT_NE(said_on(good, Kind::kEnrolled), nullptr);
  EXPECT_EQ(said_on(good, Kind::kEnrolled)->enrolled().certificates(), "the certificates");
  EXPECT_EQ(refusal(bad), "no such token");
  EXPECT_THAT(refusal(unlucky), HasSubstr("cannot enrol now")) << "and nothing of the origin's own files";
  origin.handle_enrolled(good, EnrolledWorker{"w1", "again"});
  run();
  EXPECT_EQ(said[good].size(), 1u);
}

TEST_F(OriginEnrolment, AStrangerMayDoNothingElse) {
  for (const wire::Message& message : {join_message("a"), hello_message("a"), hello_message(""), join_message("")}) {
    const ConnId conn = hear(identity(Role::kStranger, ""), message);
    EXPECT_NE(refusal(conn), "") << message.ShortDebugString();
  }
  EXPECT_TRUE(origin.members().all().empty());
  // While it waits for its certificates, too.
  const ConnId waiting = hear(identity(Role::kStranger, ""), enroll_message());
  say(waiting, enroll_message());
  EXPECT_EQ(asked.size(), 1u) << "once";
  say(waiting, join_message("a"));
  EXPECT_THAT(refusal(waiting), HasSubstr("may only enrol"));
  origin.handle_enrolled(waiting, EnrolledWorker{"w1", "too late"});
  run();
  EXPECT_EQ(said_on(waiting, Kind::kEnrolled), nullptr);
}

TEST_F(OriginEnrolment, OnlyAStrangerEnrols) {
  EXPECT_THAT(refusal(hear(identity(Role::kWorker, "a"), enroll_message())), HasSubstr("has a certificate"));
  EXPECT_THAT(refusal(hear(std::nullopt, enroll_message())), HasSubstr("needs encryption"));
  wire::Message old = enroll_message();
  old.mutable_enroll()->set_protocol(kProtocolVersionMin - 1);
  EXPECT_THAT(refusal(hear(identity(Role::kStranger, ""), old)), HasSubstr("speaks protocol"));
  EXPECT_TRUE(asked.empty());
}

TEST_F(OriginIdentity, BeforeAnIntroductionNothingElseIsHeard) {
  for (const wire::Message& message : every_message()) {
    if (message.has_join() || message.has_hello()) continue;
    const ConnId conn = hear(identity(Role::kWorker, "a"), message);
    EXPECT_NE(refusal(conn), "") << message.ShortDebugString();
  }
  EXPECT_TRUE(origin.members().all().empty());
}

/// One that has not joined yet.
struct WorkerIdentity : WorkerCoreTest {
  std::vector<std::string> lists;

  void SetUp() override {
    worker.start(now);
    run();
  }
  void note(const Action& action) override {
    if (const auto* take = std::get_if<action::TakeRevocations>(&action)) lists.push_back(take->list);
  }
  [[nodiscard]] bool said_on(ConnId conn, wire::Message::KindCase kind) const {
    return std::ranges::any_of(
        said, [&](const action::Send& send) { return send.conn == conn && send.message.kind_case() == kind; });
  }
  /// Joins an origin that has a version, which comes from "p" and, behind it, the origin.
  void join_and_announce() {
    const ConnId control = dialled.back().conn;
    worker.handle_connected(now, control, identity(Role::kOrigin, "origin"));
    wire::Message joined;
    joined.mutable_joined()->set_peer_id(5);
    worker.handle_message(now, control, joined);
    worker.handle_message(now, control, announce_message(*manifest_of(Version{1}, 100), 1, "p"));
    worker.handle_payload_begun(now, Version{1}, RestoredPayload{});
    run();
  }
};

TEST_F(WorkerIdentity, JoinsNobodyButAnOrigin) {
  const ConnId conn = dialled.back().conn;
  worker.handle_connected(now, conn, identity(Role::kWorker, "false"));
  run();
  EXPECT_FALSE(said_on(conn, wire::Message::kJoin));
  EXPECT_THAT(closed, ::testing::Contains(conn));
  EXPECT_THAT(worker.last_error(), HasSubstr("is worker false, not the origin"));
  now = *worker.poll_deadline();
  worker.handle_timeout(now);
  run();
  ASSERT_EQ(dialled.size(), 2u) << "it tries again";
  worker.handle_connected(now, dialled.back().conn, identity(Role::kOrigin, "any name"));
  run();
  EXPECT_TRUE(said_on(dialled.back().conn, wire::Message::kJoin));
}

TEST_F(WorkerIdentity, TakesChunksFromTheParentThatThePlanNamesOnly) {
  join_and_announce();
  const ConnId parent = dialled.back().conn;
  ASSERT_EQ(dialled.back().host, "p");
  worker.handle_connected(now, parent, identity(Role::kWorker, "another"));
  run();
  EXPECT_FALSE(said_on(parent, wire::Message::kHello));
  EXPECT_THAT(closed, ::testing::Contains(parent));
  // The next ancestor is the origin, and a worker's keys do not stand for it.
  const ConnId second = dialled.back().conn;
  ASSERT_EQ(dialled.back().host, "origin");
  worker.handle_connected(now, second, identity(Role::kWorker, "p"));
  run();
  EXPECT_FALSE(said_on(second, wire::Message::kHello));
  for (int i = 0; i < 10 && dialled.back().host != "p"; ++i) {
    now = *worker.poll_deadline();
    worker.handle_timeout(now);
    run();
  }
  ASSERT_EQ(dialled.back().host, "p") << "and so on in turn";
  worker.handle_connected(now, dialled.back().conn, identity(Role::kWorker, "p"));
  run();
  EXPECT_TRUE(said_on(dialled.back().conn, wire::Message::kHello));
}

// What only an origin may say changes nothing where a child or a parent says it.
TEST_F(WorkerIdentity, OnlyTheOriginsConnectionPlansAnnouncesGrowsAndWithdraws) {
  join_and_announce();
  const ConnId parent = dialled.back().conn;
  worker.handle_connected(now, parent, identity(Role::kWorker, "p"));
  const ConnId child = worker.next_conn();
  worker.handle_accepted(now, child, "host", identity(Role::kWorker, "c"));
  worker.handle_message(now, child, hello_message("c"));
  run();
  const wire::Message announce = announce_message(*manifest_of(Version{2}, 100), 9);
  wire::Message assignment;
  *assignment.mutable_assignment() = announce.announce().assignment();
  set_payload(*assignment.mutable_assignment(), Version{1});
  wire::Message probe;
  probe.mutable_probe()->set_peer_id(3);
  probe.mutable_probe()->mutable_address()->set_host("victim");
  probe.mutable_probe()->mutable_address()->set_port(80);
  wire::Message growth;
  set_payload(*growth.mutable_growth(), Version{1});
  wire::Message revocations;
  revocations.mutable_revocations()->set_list("a list");
  const std::size_t dials = dialled.size();
  for (const ConnId conn : {parent, child}) {
    for (const wire::Message& message : {announce, assignment, probe, growth, revocations}) {
      worker.handle_message(now, conn, message);
      run();
    }
  }
  EXPECT_TRUE(lists.empty());
  EXPECT_EQ(worker.receiving(), Version{1});
  EXPECT_EQ(dialled.size(), dials);
}

TEST_F(WorkerIdentity, TakesTheListOfRevokedKeysFromItsOriginAndSaysWhichCounts) {
  join_and_announce();
  const ConnId control = dialled.front().conn;
  wire::Message message;
  message.mutable_revocations()->set_list("a list");
  worker.handle_message(now, control, message);
  message.mutable_revocations()->set_list(std::string(kRevocationsBytesMax + 1, 'x'));
  worker.handle_message(now, control, message);
  run();
  EXPECT_EQ(lists, std::vector<std::string>{"a list"}) << "not one that is too long";
  worker.handle_revocations(now, 7);
  said.clear();
  now = *worker.poll_deadline();
  worker.handle_timeout(now);
  run();
  ASSERT_TRUE(said_on(control, wire::Message::kHeartbeat));
  EXPECT_EQ(said.front().message.heartbeat().revocations(), 7u);
}

TEST_F(WorkerIdentity, AChildSpeaksAsItselfOnly) {
  const ConnId conn = worker.next_conn();
  worker.handle_accepted(now, conn, "host", identity(Role::kWorker, "c"));
  worker.handle_message(now, conn, hello_message("d"));
  run();
  EXPECT_THAT(closed, ::testing::Contains(conn));
  EXPECT_TRUE(worker.children().empty());
}

}  // namespace
}  // namespace weightcast
