// The numbers that a whole fleet must keep to.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/units.h"
#include "tests/e2e/cluster.h"

namespace weightcast {
namespace {

TEST(Rate, ChainOfThreeTakesTheLineTimeOfOne) {
  Cluster cluster;
  const Cluster::Flags line{"--uplink", "100mbit", "--downlink", "100mbit"};
  cluster.start_origin({"--uplink", "100mbit", "--topology", "chain"});
  for (const char* name : {"a", "b", "c"}) cluster.start_worker(name, line);
  const double line_s = double(64 * kMiB) / Rate::bits(100e6).bytes_per_s;
  // Time that other programs take from this host makes an attempt slower, never faster: the best of five counts.
  double best_s = 1e9;
  for (unsigned version = 1; version <= 5 && best_s > 1.05 * line_s; ++version) {
    const std::string source = write_snapshot(cluster.temp().file("model.safetensors"), 64 * kMiB, version);
    const Ran ran = cluster.publish(source, version);
    ASSERT_EQ(ran.status, 0) << ran.err;
    const auto result = nlohmann::json::parse(ran.out);
    best_s = std::min(best_s, result.at("t100_s").get<double>());
    EXPECT_GE(result.at("t100_s"), 0.97 * line_s) << "the limit is kept";
    EXPECT_LE(result.at("origin_egress_bytes"), 65 * kMiB) << "the payload leaves the origin once";
  }
  EXPECT_LE(best_s, 1.05 * line_s) << "if the host is busy, that is why; its load is " << read_file("/proc/loadavg");
}

}  // namespace
}  // namespace weightcast
