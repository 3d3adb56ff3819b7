// A member with keys of its own that takes what is others': the origin's uplink by many connections, its time by
// large messages, its log by many. What the others get is counted in bytes and lines, not in seconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/e2e/fleet/cluster.h"
#include "tests/e2e/hostile/greedy_member.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kBytes = 8'000'000;

class GreedyMembers : public KeyedFleet {
 protected:
  [[nodiscard]] std::unique_ptr<GreedyMember> subscriber(const std::string& name, std::size_t connections) {
    return take_copies_of(Version{1}, keys, name, cluster.address("origin"), connections);
  }
  void publish(std::uint64_t version) { cluster.publish_bytes(version, kBytes, {"--wait", "1", "--timeout", "60"}); }
  [[nodiscard]] std::string offence(const std::string& name) {
    const auto node = cluster.node("origin", name);
    return node.is_null() ? std::string() : node.at("offence").get<std::string>();
  }
};

TEST_F(GreedyMembers, WhoHasNotJoinedGetsNothingAndIsNamed) {
  cluster.start_fleet({"a"}, {"--uplink", "100mbit"});
  publish(1);
  const auto greedy = subscriber("greedy", 64);
  ASSERT_TRUE(Cluster::eventually([&] { return greedy->closed() > 0; }));
  cluster.start_worker("b");
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("b") == 1; })) << cluster.log("b");
  EXPECT_TRUE(Cluster::eventually([&] { return offence("greedy") != ""; })) << cluster.log("origin");
  EXPECT_THAT(offence("greedy"), HasSubstr("has no place for in any plan"));
  EXPECT_EQ(greedy->chunk_bytes(), 0u);
}

TEST_F(GreedyMembers, WhoTakesAVersionAgainAndAgainLeavesMostOfTheUplinkToOthersAndIsNamed) {
  cluster.start_origin({"--uplink", "100mbit", "--topology", "star"});
  const HostileWorker joined(keys, "greedy", cluster.temp().file("greedy"), cluster.address("origin"),
                             Conduct::kHonest);
  ASSERT_TRUE(Cluster::eventually([&] { return !cluster.node("origin", "greedy").is_null(); }));
  publish(1);
  const auto greedy = subscriber("greedy", 60);
  ASSERT_TRUE(Cluster::eventually([&] { return greedy->chunk_bytes() > kBytes; }));
  cluster.launch("b", {"--role", "worker", "--origin", cluster.address("origin")});
  ASSERT_TRUE(Cluster::eventually([&] { return !cluster.node("origin", "b").is_null(); }));
  const std::uint64_t before = greedy->chunk_bytes();
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("b") == 1; })) << cluster.log("b");
  // A quarter, by its share; the rest is what was on its way, and what left before and after b received.
  EXPECT_LT(greedy->chunk_bytes() - before, kBytes) << "60 connections got less than the one of b";
  EXPECT_TRUE(Cluster::eventually([&] { return offence("greedy") != ""; })) << cluster.log("origin");
  EXPECT_THAT(offence("greedy"), HasSubstr("has taken 4 copies of version 1"));
}

TEST_F(GreedyMembers, LargeMessagesAreReadAtTheirSendersShareAndItIsNamed) {
  cluster.start_fleet({"a"});
  publish(1);
  const HostileWorker joined(keys, "greedy", cluster.temp().file("greedy"), cluster.address("origin"),
                             Conduct::kHonest);
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("origin") == 1; }));
  const wire::Message large = large_message(400'000);
  const GreedyMember flood(
      keys, "greedy", cluster.address("origin"), 4, [](FrameConnection& to) { say_hello(to, "greedy"); }, nullptr,
      [large](FrameConnection& to) { say(to, large); });
  EXPECT_TRUE(Cluster::eventually([&] { return offence("greedy") != ""; })) << cluster.log("origin");
  EXPECT_THAT(offence("greedy"), HasSubstr("more than its share of messages"));
  publish(2);
}

TEST_F(GreedyMembers, MessagesThatNoWorkerSendsAreRefusedAndTheirSenderIsNamed) {
  cluster.start_origin();
  const HostileWorker joined(keys, "greedy", cluster.temp().file("greedy"), cluster.address("origin"),
                             Conduct::kHonest);
  ASSERT_TRUE(Cluster::eventually([&] { return !cluster.node("origin", "greedy").is_null(); }));
  wire::Message large;
  large.mutable_announce()->mutable_manifest()->set_part_digests(std::string(1'000'000, 'x'));
  const GreedyMember flood(
      keys, "greedy", cluster.address("origin"), 4,
      [large](FrameConnection& to) {
        say_hello(to, "greedy");
        say(to, large);
      },
      nullptr, nullptr);
  EXPECT_TRUE(Cluster::eventually([&] { return flood.closed() >= 8; }));
  EXPECT_THAT(offence("greedy"), HasSubstr("messages that no worker sends"));
  EXPECT_THAT(cluster.log("origin"), HasSubstr("announce: no node sends that there"));
}

TEST_F(GreedyMembers, FailuresThatAMemberReportsFillNoLog) {
  cluster.start_origin();
  HostileWorker joined(keys, "greedy", cluster.temp().file("greedy"), cluster.address("origin"), Conduct::kHonest);
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.node("origin", "greedy").is_object(); }));
  wire::Message failed;
  set_payload(*failed.mutable_install_failed(), Version{1});
  failed.mutable_install_failed()->set_detail(std::string(1000, 'x'));
  std::atomic<int> reports = 0;
  const GreedyMember loud(
      keys, "loud", cluster.address("origin"), 1, [](FrameConnection& to) { say(to, join_message("loud", 7)); },
      nullptr,
      [failed, &reports](FrameConnection& to) {
        if (++reports < 1500) say(to, failed);
      });
  ASSERT_TRUE(Cluster::eventually([&] { return reports >= 1500; }));
  // Not for both: a wait ends early for whom it can no longer reach, and loud has said that it cannot.
  cluster.publish_bytes(1, kBytes, {"--wait", "0.5", "--timeout", "60"});
  const std::string log = cluster.log("origin");
  EXPECT_THAT(log, HasSubstr("worker loud could not install version 1"));
  EXPECT_LT(log.size(), 100'000u);
}

}  // namespace
}  // namespace weightcast
