// A relay that is stopped: its kernel still accepts connections, and nobody shakes hands on them.
#include <gmock/gmock.h>

#include <csignal>

#include "tests/e2e/fleet/cluster.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

TEST(StoppedRelay, IsLeftByTheChildThatDialsItAndGetsTheVersionWhenItGoesOn) {
  const ClusterKeys keys;
  Cluster cluster;
  cluster.use_keys(keys);
  // All links are equal, so a is the first of one chain: it has joined first.
  cluster.start_origin({"--topology", "chain", "--uplink", "200mbit", "--pack", "never"});
  for (const char* name : {"a", "b", "c"}) {
    cluster.start_worker(name, {"--uplink", "200mbit", "--downlink", "200mbit"});
  }
  const std::string source = write_snapshot(cluster.temp().file("1.safetensors"), 8'000'000, 1);
  cluster.process("a").signal(SIGSTOP);
  ASSERT_THAT(cluster.publish(source, 1, {"--wait", "0.6", "--timeout", "60"}), Exits(0)) << cluster.log("origin");
  for (const char* name : {"b", "c"}) EXPECT_TRUE(cluster.holds(name, source)) << name << cluster.log(name);
  const std::string what = "cannot reach a at " + cluster.address("a") + ": timed out";
  EXPECT_THAT(cluster.log("b"), HasSubstr(what));
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.log("origin").find("worker b " + what) != std::string::npos; }))
      << cluster.log("origin");
  nlohmann::json phases;
  EXPECT_TRUE(Cluster::eventually([&] {
    phases = cluster.phases("b", 1);
    return !phases.is_null();
  }));
  EXPECT_EQ(phases.at("parents_left"), 1) << phases;
  // 1.25 s on an idle machine; as long as a handshake may take if nobody judged the dial.
  EXPECT_LT(phases.at("interrupted_s").get<double>(), 4) << phases;
  cluster.process("a").signal(SIGCONT);
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.version("a") == 1; })) << cluster.log("a");
  for (const char* name : {"a", "b", "c"}) {
    const nlohmann::json node = cluster.node("origin", name);
    EXPECT_EQ(node.at("offence"), "") << node;
    EXPECT_EQ(node.at("complaints").get<int>() + node.at("complains").get<int>(), 0) << node;
  }
}

}  // namespace
}  // namespace weightcast
