#include "transport/core/worker/peer_dials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/worker/worker_core_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A worker that is to be fed by p, and then by the origin.
struct PeerDialsTest : WorkerCoreTest {
  std::vector<std::string> warnings, charged, news;
  std::vector<wire::FaultKind> faults;

  void note(const Action& action) override {
    const auto* log = std::get_if<action::Log>(&action);
    if (log != nullptr && log->level == action::Log::Level::kWarning) {
      warnings.push_back(log->text);
      charged.push_back(log->peer);
    }
    const auto* send = std::get_if<action::Send>(&action);
    if (send == nullptr) return;
    if (send->message.has_parent_fault()) faults.push_back(send->message.parent_fault().kind());
    if (!send->message.has_probed()) return;
    const wire::Probed& probed = send->message.probed();
    news.push_back(std::to_string(probed.peer_id()) + (probed.reached() ? " reached" : ": " + probed.reason()));
  }
  void announce(std::uint64_t version) {
    tell(announce_message(*manifest_of(Version{version}, 100), version, "10.0.0.4"));
  }
  ConnId dialled_to(const std::string& host) {
    const auto found = std::ranges::find(dialled.rbegin(), dialled.rend(), host, &action::Connect::host);
    return found == dialled.rend() ? ConnId{} : found->conn;
  }
  void fail_dial(ConnId conn, Errc code, const std::string& why) {
    worker.handle_closed(now, conn, fail(code, Op::kConnect, why));
    run();
  }
  void pass(Duration span) {
    now += span;
    worker.handle_timeout(now);
    run();
  }
  static wire::Message ask(std::uint32_t peer) {
    wire::Message message;
    message.mutable_probe()->set_peer_id(peer);
    message.mutable_probe()->set_name("q");
    message.mutable_probe()->mutable_address()->set_host("10.0.0.7");
    message.mutable_probe()->mutable_address()->set_port(70);
    return message;
  }
};

TEST_F(PeerDialsTest, ParentThatRefusesIsNamedAndNotComplainedOf) {
  announce(1);
  fail_dial(dialled_to("10.0.0.4"), Errc::kIo, "to 10.0.0.4:700: Connection refused; is the daemon running there?");
  EXPECT_THAT(news, ElementsAre("9: connection refused"));
  EXPECT_THAT(faults, ElementsAre(wire::FAULT_KIND_NOT_AVAILABLE));
  ASSERT_THAT(warnings, ElementsAre("cannot reach p at 10.0.0.4:700: connection refused"));
  EXPECT_THAT(charged, ElementsAre("p")) << "who does not answer pays for the lines";
  ASSERT_EQ(worker.dials().unreached().size(), 1u);
}

TEST_F(PeerDialsTest, ParentThatDoesNotAnswerIsNamedOnceAndAgainWhenTheReasonIsKnown) {
  announce(1);
  const ConnId dial = dialled_to("10.0.0.4");
  pass(config.timeouts.dial_beside);
  EXPECT_THAT(news, IsEmpty());
  pass(config.timeouts.dial - config.timeouts.dial_beside);
  EXPECT_THAT(news, ElementsAre("9: timed out"));
  fail_dial(dial, Errc::kTimedOut, "to 10.0.0.4:700: timed out; no answer within 5 s: check the address");
  EXPECT_THAT(news, ElementsAre("9: timed out")) << "nothing new";
  announce(2);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("cannot reach p at 10.0.0.4:700: timed out")));
}

TEST_F(PeerDialsTest, DialThatOnlyTakesLongIsReportedWhenItIsMade) {
  announce(1);
  const ConnId dial = dialled_to("10.0.0.4");
  pass(config.timeouts.dial_beside);
  pass(config.timeouts.dial - config.timeouts.dial_beside);
  worker.handle_connected(now, dial);
  run();
  EXPECT_THAT(news, ElementsAre("9: timed out", "9 reached"));
  EXPECT_THAT(worker.dials().unreached(), IsEmpty());
}

TEST_F(PeerDialsTest, ConnectionThatEndsLaterIsNoDialThatFailed) {
  announce(1);
  worker.handle_connected(now, dialled_to("10.0.0.4"));
  run();
  fail_dial(dialled_to("10.0.0.4"), Errc::kClosed, "the peer ended the connection");
  EXPECT_THAT(news, IsEmpty());
  EXPECT_THAT(faults, ElementsAre(wire::FAULT_KIND_CLOSED));
}

TEST_F(PeerDialsTest, AskedForADialItAnswersInTimeAndAgainWhenTheReasonIsKnown) {
  tell(ask(7));
  pass(config.timeouts.dial);
  EXPECT_THAT(news, ElementsAre("7: timed out"));
  fail_dial(dialled_to("10.0.0.7"), Errc::kTimedOut, "to 10.0.0.7:70: TLS handshake not finished; nothing for 5 s");
  EXPECT_THAT(news, ElementsAre("7: timed out", "7: TLS handshake not finished"));
  tell(ask(7));
  fail_dial(dialled_to("10.0.0.7"), Errc::kIo, "to 10.0.0.7:70: No route to host");
  EXPECT_THAT(news.back(), "7: no route to host");
  tell(ask(7));
  fail_dial(dialled_to("10.0.0.7"), Errc::kIo, "to 10.0.0.7:70: No route to host");
  EXPECT_THAT(news, testing::SizeIs(4)) << "who is asked answers, also if nothing is new";
  EXPECT_THAT(warnings, testing::SizeIs(3)) << "but logs what is new alone";
}

TEST_F(PeerDialsTest, ThatOthersCannotDialThisWorkerIsKnownToItself) {
  const auto hear = [&](const std::string& who) {
    wire::Message probed;
    probed.mutable_probed()->set_reached(who.empty());
    probed.mutable_probed()->set_reason(who);
    tell(probed);
  };
  hear("");
  for (int i = 0; i < 3; ++i) hear("the origin cannot dial it at [::1]:70: connection refused");
  ASSERT_THAT(warnings,
              ElementsAre(testing::StartsWith("the origin cannot dial it at [::1]:70: connection refused; ")));
  EXPECT_EQ(worker.dials().undialled(), warnings[0]);
  EXPECT_THAT(warnings[0], HasSubstr("let that port through this host's firewall, or --listen 0.0.0.0"));
  hear("");
  EXPECT_EQ(worker.dials().undialled(), "");
}

TEST_F(PeerDialsTest, AfterItJoinedAgainItSaysEverythingAnew) {
  announce(1);
  fail_dial(dialled_to("10.0.0.4"), Errc::kIo, "to 10.0.0.4:700: Connection refused");
  wire::Message joined;
  joined.mutable_joined()->set_peer_id(6);
  tell(joined);
  EXPECT_THAT(worker.dials().unreached(), IsEmpty()) << "numbers may be others' by now";
}

}  // namespace
}  // namespace weightcast
