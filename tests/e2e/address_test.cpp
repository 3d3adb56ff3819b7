// A worker whose address changes while it runs, as by DHCP: network namespaces, joined by a bridge.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/fleet/network.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/e2e/fleet/hosts.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr bench::NodeIndex kOrigin = 0, kMoving = 2;

struct AddressTest : testing::Test, Hosts {
  void SetUp() override {
    const auto rate = Rate::bits(80e6);
    make_hosts(std::vector<bench::LinkRates>(4, {rate, rate}));
    if (network == nullptr) return;
    cluster.put_on_host("origin", on(kOrigin));
    cluster.start_origin({"--listen", network->endpoint(kOrigin).host + ":0"});
    for (bench::NodeIndex host = 1; host < 4; ++host) {
      const std::string worker = "w" + std::to_string(host);
      cluster.put_on_host(worker, on(host));
      cluster.start_worker(worker, {"--listen", "0.0.0.0:7402"});
    }
  }
  [[nodiscard]] bool ip(const std::vector<std::string>& words) const {
    std::vector<std::string> arguments = on(kMoving);
    arguments.insert(arguments.end(), {"ip", "addr"});
    arguments.insert(arguments.end(), words.begin(), words.end());
    return run_program(arguments, cluster.temp().path()).status == 0;
  }
  void publish_to_all() {
    const std::string source =
        write_snapshot(cluster.temp().file("model.safetensors"), 4 << 20, static_cast<unsigned>(++version));
    EXPECT_THAT(cluster.publish(source, version, {"--wait", "1"}), Exits(0)) << cluster.log("origin");
    for (const char* worker : {"w1", "w2", "w3"}) EXPECT_TRUE(cluster.holds(worker, source)) << worker;
  }
  [[nodiscard]] std::string address_of_moving() const {
    const nlohmann::json node = cluster.node("origin", "w2");
    return node.is_null() || node.value("state", "") == "lost" ? "" : node.value("address", "");
  }
  /// Lines of the others' logs that name it.
  [[nodiscard]] std::size_t mentions(const std::string& text) const {
    std::size_t count = 0;
    for (const char* name : {"origin", "w1", "w3"}) {
      const std::string log = cluster.log(name);
      for (std::size_t at = 0; (at = log.find(text, at)) != std::string::npos; ++at) ++count;
    }
    return count;
  }

  Cluster cluster;
  std::uint64_t version = 0;
};

// No connection of the worker's gets an answer any more, and nobody tells it.
TEST_F(AddressTest, AWorkerWhoseAddressChangesComesBackUnderTheNewOne) {
  const std::string before = network->endpoint(kMoving).host, after = "10.77.9.9";
  publish_to_all();
  EXPECT_EQ(address_of_moving(), before + ":7402");
  const auto moved = std::chrono::steady_clock::now();
  ASSERT_TRUE(ip({"del", before + "/16", "dev", "eth0"}));
  ASSERT_TRUE(ip({"add", after + "/16", "dev", "eth0"}));
  ASSERT_TRUE(Cluster::eventually([&] { return address_of_moving() == after + ":7402"; }))
      << cluster.log("origin") << cluster.log("w2");
  const std::chrono::duration<double> away = std::chrono::steady_clock::now() - moved;
  RecordProperty("seconds_away", std::to_string(away.count()));
  publish_to_all();
  // The old address is forgotten: nobody dials it for any of these.
  const std::size_t of_old = mentions(before + ":7402");
  for (int i = 0; i < 3; ++i) publish_to_all();
  EXPECT_EQ(mentions(before + ":7402"), of_old) << cluster.log("origin") << cluster.log("w1") << cluster.log("w3");
  EXPECT_EQ(address_of_moving(), after + ":7402");
}

}  // namespace
}  // namespace weightcast
