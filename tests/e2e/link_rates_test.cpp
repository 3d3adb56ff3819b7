// Rates that nobody configures: daemons measure them, show them, and remember them.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/e2e/fleet/cluster.h"

namespace weightcast {
namespace {

struct Rates {
  double up = 0, down = 0;
  bool operator==(const Rates&) const = default;
  [[nodiscard]] bool known() const { return up > 0 && down > 0; }
};

Rates rates_of(const nlohmann::json& node) {
  return node.is_null() ? Rates{}
                        : Rates{node.value("uplink_bytes_per_s", 0.0), node.value("downlink_bytes_per_s", 0.0)};
}

TEST(LinkRates, AreMeasuredAndOutliveEachDaemon) {
  Cluster cluster;
  cluster.start_fleet({"a"});
  const auto of_a = [&] { return rates_of(cluster.node("origin", "a")); };
  const auto of_origin = [&] { return rates_of(cluster.self("origin")).up; };
  ASSERT_TRUE(Cluster::eventually([&] { return of_a().known() && of_origin() > 0; })) << cluster.log("origin");
  const Rates measured = of_a();
  const double uplink = of_origin();

  ASSERT_TRUE(cluster.end("a", SIGKILL));
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.node("origin", "a").value("state", "") == "lost"; }));
  cluster.restart("a");
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.node("origin", "a").value("state", "") != "lost"; }));
  EXPECT_EQ(of_a(), measured);

  // Of a worker that is not there nothing can be measured anew.
  ASSERT_TRUE(cluster.end("a", SIGTERM));
  ASSERT_TRUE(cluster.end("origin", SIGTERM));
  cluster.restart("origin");
  ASSERT_TRUE(Cluster::eventually([&] { return !cluster.node("origin", "a").is_null(); }));
  EXPECT_EQ(of_a(), measured);
  EXPECT_EQ(of_origin(), uplink);
}

}  // namespace
}  // namespace weightcast
