// The numbers that a whole fleet must keep to.
#include <gtest/gtest.h>

#include "base/units.h"
#include "tests/e2e/cluster.h"

namespace weightcast {
namespace {

TEST(Rate, ChainOfThreeTakesTheLineTimeOfOne) {
  Cluster cluster;
  const Cluster::Flags line{"--uplink", "100mbit", "--downlink", "100mbit"};
  cluster.start_origin({"--uplink", "100mbit", "--topology", "chain"});
  for (const char* name : {"a", "b", "c"}) cluster.start_worker(name, line);
  const std::string source = write_snapshot(cluster.temp().file("model.safetensors"), 64 * kMiB, 1);
  const Ran ran = cluster.publish(source, 1);
  ASSERT_EQ(ran.status, 0) << ran.err;
  const auto result = nlohmann::json::parse(ran.out);
  const double line_s = double(64 * kMiB) / Rate::bits(100e6).bytes_per_s;
  EXPECT_LE(result.at("t100_s"), 1.05 * line_s);
  EXPECT_GE(result.at("t100_s"), 0.97 * line_s) << "the limit is kept";
  EXPECT_LE(result.at("origin_egress_bytes"), 65 * kMiB) << "the payload leaves the origin once";
}

}  // namespace
}  // namespace weightcast
