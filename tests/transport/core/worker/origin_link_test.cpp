#include "transport/core/worker/origin_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/core/payload_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct OriginLinkTest : testing::Test {
  OriginLinkTest() {
    config.name = "w";
    config.origin_host = "origin";
    config.origin_port = 1;
  }
  /// The connections that it has asked for since the last call.
  std::vector<ConnId> dialled() {
    std::vector<ConnId> conns;
    for (const auto& to : only<action::Connect>(drain([&] { return actions.poll(); }))) conns.push_back(to.conn);
    return conns;
  }
  void join() {
    link.handle_connected(now, {});
    wire::Joined joined;
    joined.set_peer_id(5);
    joined.set_heartbeat_ms(1000);
    link.handle_joined(now, joined);
  }
  void close() { link.handle_closed(now, fail(Errc::kClosed, Op::kReceive, "reset")); }

  WorkerConfig config;
  ConnIds ids;
  ActionQueue actions;
  OriginLink link{config, ids, actions};
  Instant now{1h};
};

TEST_F(OriginLinkTest, SaysWhoItIsAsSoonAsItIsConnected) {
  link.start(now);
  wire::Join join;
  join.set_installed_version(7);
  actions = {};
  link.handle_connected(now, join);
  const std::optional<Action> said = actions.poll();
  ASSERT_TRUE(said);
  const wire::Join& told = std::get<action::Send>(*said).message.join();
  EXPECT_EQ(told.name(), "w");
  EXPECT_EQ(told.installed_version(), 7u);
}

TEST_F(OriginLinkTest, DialsAgainAfterPausesThatDoubleUntilItHasJoined) {
  link.start(now);
  ASSERT_EQ(dialled().size(), 1u);
  for (const Duration pause : {50ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 2000ms, 2000ms}) {
    close();
    EXPECT_EQ(link.poll_deadline(), now + pause);
    now += pause;
    link.handle_timeout(now);
    ASSERT_EQ(dialled().size(), 1u);
  }
  join();
  close();
  EXPECT_EQ(link.poll_deadline(), now + 50ms);
}

TEST_F(OriginLinkTest, OriginThatIsSilentIsDialledAgain) {
  link.start(now);
  join();
  static_cast<void>(dialled());
  now += 9s;
  link.handle_heard(now);
  now += 9s;
  link.handle_timeout(now);
  EXPECT_TRUE(link.joined());
  now += 1s;
  link.handle_timeout(now);
  EXPECT_FALSE(link.joined());
  now = *link.poll_deadline();
  link.handle_timeout(now);
  EXPECT_EQ(dialled().size(), 1u);
}

TEST_F(OriginLinkTest, JoinsAnewOnANewConnectionWhenItIsTold) {
  link.start(now);
  join();
  const std::vector<ConnId> first = dialled();
  link.rejoin(now, "version 7 is lost");
  EXPECT_FALSE(link.joined());
  EXPECT_EQ(only<action::Close>(drain([&] { return actions.poll(); })).size(), 1u);
  now = *link.poll_deadline();
  link.handle_timeout(now);
  const std::vector<ConnId> second = dialled();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_NE(second, first);
  link.rejoin(now, "it is being dialled already");
  EXPECT_TRUE(dialled().empty());
  EXPECT_FALSE(link.poll_deadline());
}

TEST_F(OriginLinkTest, HeartbeatsComeAsOftenAsTheOriginSays) {
  link.start(now);
  EXPECT_FALSE(link.heartbeat_due(now));
  join();
  EXPECT_TRUE(link.heartbeat_due(now));
  link.send_heartbeat(now, {});
  EXPECT_FALSE(link.heartbeat_due(now + 999ms));
  EXPECT_TRUE(link.heartbeat_due(now + 1s));
}

TEST_F(OriginLinkTest, RefusalIsToldUntilItJoins) {
  link.start(now);
  link.handle_connected(now, {});
  wire::Bye bye;
  bye.set_reason("another model");
  link.handle_bye(bye);
  close();
  EXPECT_THAT(link.last_error(), HasSubstr("another model"));
  now = *link.poll_deadline();
  link.handle_timeout(now);
  join();
  EXPECT_EQ(link.last_error(), "");
}

}  // namespace
}  // namespace weightcast
