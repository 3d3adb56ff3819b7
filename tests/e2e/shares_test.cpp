// Shares of an uplink that nobody has configured, on hosts of their own: network namespaces with capped links.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "bench/fleet/network.h"
#include "bench/times.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/e2e/fleet/hosts.h"
#include "tests/e2e/hostile/greedy_member.h"

namespace weightcast {
namespace {

constexpr unsigned kPairs = 3;
constexpr unsigned kConnections = 60;
constexpr std::uint64_t kBytes = 12'000'000;

struct SharesTest : KeyedFleet, Hosts {
  void SetUp() override {
    // The origin, who is greedy, and the others.
    const auto rate = Rate::bits(100e6);
    make_hosts(std::vector<bench::LinkRates>(2 + 2 * kPairs, {rate, rate}));
  }
  template <typename Make>
  void on_greedy_host(Make make) {
    ASSERT_TRUE(network
                    ->on_host(1,
                              [&] {
                                make();
                                return Status{};
                              })
                    .has_value());
  }
  /// How long the latest version takes to a worker that has none.
  double join(unsigned host) {
    const std::string name = "w" + std::to_string(host);
    cluster.put_on_host(name, on(host));
    cluster.start_worker(name, {"--listen", network->endpoint(host).host + ":0"});
    EXPECT_TRUE(Cluster::eventually([&] { return cluster.version(name) == 1; })) << cluster.log(name);
    const std::string log = cluster.log(name), words = "version 1 is installed after ";
    const std::size_t at = log.find(words);
    return at == std::string::npos ? 0 : std::stod(log.substr(at + words.size()));
  }
};

TEST_F(SharesTest, AWorkerBesideOneThatTakesCopyAfterCopyOnManyConnectionsWaitsTwiceAsLongAtMost) {
  cluster.put_on_host("origin", on(0));
  cluster.start_origin({"--listen", network->endpoint(0).host + ":0", "--topology", "star", "--pack", "never"});
  std::unique_ptr<HostileWorker> joined;
  on_greedy_host([&] {
    joined = std::make_unique<HostileWorker>(keys, "greedy", cluster.temp().file("greedy"), cluster.address("origin"),
                                             Conduct::kHonest);
  });
  ASSERT_TRUE(Cluster::eventually([&] { return !cluster.node("origin", "greedy").is_null(); }));
  cluster.publish_bytes(1, kBytes);
  std::vector<double> alone_s, beside_s;
  for (unsigned pair = 0; pair < kPairs; ++pair) {
    alone_s.push_back(join(2 + 2 * pair));
    std::unique_ptr<GreedyMember> greedy;
    on_greedy_host(
        [&] { greedy = take_copies_of(Version{1}, keys, "greedy", cluster.address("origin"), kConnections); });
    // Two copies are anybody's.
    ASSERT_TRUE(Cluster::eventually([&] { return greedy->chunk_bytes() > 3 * kBytes; })) << cluster.log("origin");
    beside_s.push_back(join(3 + 2 * pair));
  }
  std::cout << "alone " << bench::median(alone_s) << " s, beside " << kConnections << " connections "
            << bench::median(beside_s) << " s\n";
  EXPECT_LE(bench::median(beside_s), 2 * bench::median(alone_s)) << cluster.log("origin");
}

}  // namespace
}  // namespace weightcast
