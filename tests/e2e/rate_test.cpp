// The numbers that a whole fleet must keep to.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/units.h"
#include "tests/e2e/cluster.h"

namespace weightcast {
namespace {

/// For how long the fleet's threads were ready to run and others ran.
double waited_s(Cluster& cluster) {
  double sum_ns = 0;
  for (const char* name : {"origin", "a", "b", "c"}) {
    const auto tasks = std::filesystem::path("/proc") / std::to_string(cluster.process(name).pid()) / "task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      double ran_ns = 0, waited_ns = 0;
      std::ifstream(task.path() / "schedstat") >> ran_ns >> waited_ns;
      sum_ns += waited_ns;
    }
  }
  return sum_ns / 1e9;
}

TEST(Rate, ChainOfThreeTakesTheLineTimeOfOne) {
  Cluster cluster;
  const Cluster::Flags line{"--uplink", "100mbit", "--downlink", "100mbit"};
  cluster.start_origin({"--uplink", "100mbit", "--topology", "chain"});
  for (const char* name : {"a", "b", "c"}) cluster.start_worker(name, line);
  const double line_s = double(64 * kMiB) / Rate::bits(100e6).bytes_per_s;
  // Time that other programs take from this host makes an attempt slower, never faster: the best of five counts, less
  // the time for which the daemons were ready and had no processor.
  double best_s = 1e9;
  for (unsigned version = 1; version <= 5 && best_s > 1.05 * line_s; ++version) {
    const std::string source = write_snapshot(cluster.temp().file("model.safetensors"), 64 * kMiB, version);
    const double waited_before_s = waited_s(cluster);
    const Ran ran = cluster.publish(source, version);
    ASSERT_EQ(ran.status, 0) << ran.err;
    const double waited = waited_s(cluster) - waited_before_s;
    const auto result = nlohmann::json::parse(ran.out);
    best_s = std::min(best_s, result.at("t100_s").get<double>() - waited);
    EXPECT_GE(result.at("t100_s"), 0.97 * line_s) << "the limit is kept";
    EXPECT_LE(result.at("origin_egress_bytes"), 65 * kMiB) << "the payload leaves the origin once";
  }
  EXPECT_LE(best_s, 1.05 * line_s) << "the host's load is " << read_file("/proc/loadavg");
}

}  // namespace
}  // namespace weightcast
