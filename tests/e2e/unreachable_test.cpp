// A worker whose port other workers cannot reach, or where nobody answers them, on hosts of their own: network
// namespaces with a firewall.
#include <gmock/gmock.h>

#include "bench/fleet/network.h"
#include "bench/fleet/port_taker.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/e2e/fleet/hosts.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

constexpr unsigned kWorkers = 4;
constexpr unsigned kBlocked = 2;
constexpr std::uint64_t kBytes = 24 * kMiB;

struct UnreachableTest : testing::TestWithParam<bool>, Hosts {
  void SetUp() override {
    const auto rate = Rate::bits(100e6);
    make_hosts(std::vector<bench::LinkRates>(kWorkers + 1, {rate, rate}));
  }
  static std::string name_of(unsigned worker) { return "w" + std::to_string(worker); }
  void start(bool leaf_only) {
    cluster.put_on_host("origin", on(0));
    cluster.start_origin({"--listen", network->endpoint(0).host + ":0", "--topology", "chain", "--uplink", "100mbit"});
    for (unsigned worker = 1; worker <= kWorkers; ++worker) {
      cluster.put_on_host(name_of(worker), on(worker));
      Cluster::Flags flags{"--listen", network->endpoint(worker).host + ":0", "--uplink", "100mbit", "--downlink",
                           "100mbit"};
      if (leaf_only && worker == kBlocked) flags.push_back("--leaf-only");
      cluster.start_worker(name_of(worker), flags);
    }
  }
  /// Changes the firewall of that worker's host: "-A" keeps the others from its port, "-D" lets them through again.
  void block(const char* change, bool rejects) {
    const std::string address = cluster.address(name_of(kBlocked));
    for (unsigned worker = 1; worker <= kWorkers; ++worker) {
      if (worker == kBlocked) continue;
      std::vector<std::string> words = on(kBlocked);
      for (const std::string& word :
           {std::string("iptables"), std::string(change), std::string("INPUT"), std::string("-s"),
            network->endpoint(worker).host, std::string("-p"), std::string("tcp"), std::string("--dport"),
            address.substr(address.rfind(':') + 1), std::string("-j"), std::string(rejects ? "REJECT" : "DROP")}) {
        words.push_back(word);
      }
      if (rejects) words.insert(words.end(), {"--reject-with", "tcp-reset"});
      ASSERT_EQ(Process(words, cluster.temp().file("iptables.log"), cluster.temp().file("iptables.log"))
                    .wait(std::chrono::seconds(30)),
                0)
          << read_file(cluster.temp().file("iptables.log"));
    }
  }
  double publish(std::uint64_t version) {
    const std::string source =
        write_snapshot(cluster.temp().file("model.safetensors"), kBytes, static_cast<unsigned>(version));
    const Ran ran = cluster.publish(source, version);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.status == 0 ? nlohmann::json::parse(ran.out).at("t100_s").get<double>() : 0;
  }
  bool is_unreached_by(const std::string& other) {
    const nlohmann::json node = cluster.node("origin", other);
    return !node.is_null() && !node.at("cannot_reach").empty() &&
           node.at("cannot_reach")[0].at("name") == name_of(kBlocked);
  }
  std::size_t faults() {
    std::size_t count = 0;
    const std::string log = cluster.log("origin");
    for (std::size_t at = 0; (at = log.find("left its parent", at)) != std::string::npos; ++at) ++count;
    return count;
  }
  void expect_nobody_complains() {
    for (unsigned worker = 1; worker <= kWorkers; ++worker) {
      const nlohmann::json node = cluster.node("origin", name_of(worker));
      EXPECT_EQ(node.at("complaints").get<int>() + node.at("complains").get<int>(), 0) << node;
      EXPECT_EQ(node.at("offence"), "");
    }
  }
  bool feeds_somebody() {
    bool feeds = false;
    const nlohmann::json status = cluster.status("origin");
    for (const nlohmann::json& node : status.at("nodes")) {
      feeds = feeds || node.at("parent") == name_of(kBlocked);
    }
    return feeds;
  }

  Cluster cluster;
};

TEST_P(UnreachableTest, IsNamedAndPlannedAroundUntilItCanBeDialledAgain) {
  const bool rejects = GetParam();
  start(false);
  block("-A", rejects);
  const double first_s = publish(1);
  const std::string what =
      "cannot reach w2 at " + cluster.address("w2") + (rejects ? ": connection refused" : ": timed out");
  for (const char* other : {"w1", "w3", "w4"}) {
    EXPECT_TRUE(Cluster::eventually([&] { return is_unreached_by(other); })) << other;
  }
  EXPECT_THAT(cluster.log("origin"), HasSubstr("worker w3 " + what));
  EXPECT_THAT(cluster.log("w3"), HasSubstr(what));
  EXPECT_THAT(cluster.run({"status", "--state", cluster.state("origin")}).out, HasSubstr("w1, w3, w4 " + what));
  const std::size_t faults_before = faults();
  const double second_s = publish(2);
  EXPECT_EQ(faults(), faults_before) << "nobody loses a dial to it any more";
  EXPECT_FALSE(feeds_somebody());
  expect_nobody_complains();
  std::printf("t100 with the port blocked: %.2f s, then %.2f s\n", first_s, second_s);
  block("-D", rejects);
  for (const char* other : {"w1", "w3", "w4"}) {
    EXPECT_TRUE(Cluster::eventually([&] { return !is_unreached_by(other); }, std::chrono::minutes(3))) << other;
  }
  // By now it is the tail of the chain, so the next worker to join gets it as parent.
  cluster.put_on_host("late", on(kWorkers));
  cluster.start_worker("late", {"--listen", network->endpoint(kWorkers).host + ":0"});
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.version("late") == 2; }));
  EXPECT_TRUE(feeds_somebody()) << "the others were not restarted: " << cluster.status("origin");
}

INSTANTIATE_TEST_SUITE_P(Ports, UnreachableTest, testing::Bool(),
                         [](const auto& rejects) { return rejects.param ? "Refuse" : "SayNothing"; });

using MuteRelayTest = UnreachableTest;

TEST_P(MuteRelayTest, CostsItsChildASecondOnceAndIsNamed) {
  const ClusterKeys keys;
  cluster.use_keys(keys);
  start(false);
  const std::string address = cluster.address(name_of(kBlocked));
  const auto port = static_cast<std::uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
  // The kernel accepts what is dialled from now on, and nobody shakes hands there.
  const auto mute = bench::take_port(*network, kBlocked, port);
  ASSERT_TRUE(mute.has_value()) << mute.error().message();
  const double first_s = publish(1);
  EXPECT_THAT(cluster.log("w3"), HasSubstr("cannot reach w2 at " + address + ": timed out"));
  EXPECT_TRUE(Cluster::eventually([&] { return is_unreached_by("w3"); })) << cluster.log("origin");
  const nlohmann::json phases = cluster.phases("w3", 1);
  EXPECT_EQ(phases.at("parents_left"), 1) << phases;
  // 1.25 s on an idle machine; as long as a handshake may take if nobody judged the dial.
  EXPECT_LT(phases.at("interrupted_s").get<double>(), 4) << phases;
  const std::size_t faults_before = faults();
  const double second_s = publish(2);
  EXPECT_EQ(faults(), faults_before) << "nobody dials it any more";
  expect_nobody_complains();
  std::printf("t100 with a port that shakes no hands: %.2f s, then %.2f s\n", first_s, second_s);
}

INSTANTIATE_TEST_SUITE_P(Ports, MuteRelayTest, testing::Values(false));

using LeafOnlyTest = UnreachableTest;

// docs/PERFORMANCE.md compares the times of the test above with these.
TEST_P(LeafOnlyTest, FeedsNobody) {
  start(true);
  const double first_s = publish(1);
  const double second_s = publish(2);
  EXPECT_FALSE(feeds_somebody());
  std::printf("t100 with --leaf-only: %.2f s, then %.2f s\n", first_s, second_s);
}

INSTANTIATE_TEST_SUITE_P(Compared, LeafOnlyTest, testing::Values(false));

}  // namespace
}  // namespace weightcast
