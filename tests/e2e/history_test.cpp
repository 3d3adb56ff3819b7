// What an origin remembers of its publications over a restart, and the traces that are made of it.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "base/units.h"
#include "tests/e2e/fleet/cluster.h"

namespace weightcast {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

Json history_of(const Cluster& cluster) {
  return Json::parse(cluster.run({"history", "--state", cluster.state("origin"), "--json"}).out, nullptr, false);
}

Ran trace_of(const Cluster& cluster, std::uint64_t version, const Cluster::Flags& more = {}) {
  Cluster::Flags flags{"trace", std::to_string(version), "--state", cluster.state("origin")};
  flags.insert(flags.end(), more.begin(), more.end());
  return cluster.run(flags);
}

/// An engine at `worker` pins the version in use; waits until the origin knows of it.
void take(const Cluster& cluster, const std::string& worker, std::uint64_t version) {
  ASSERT_THAT(cluster.run({"exec", "--pin", "--state", cluster.state(worker), "--", "true"}), Exits(0));
  ASSERT_TRUE(Cluster::eventually([&] { return !cluster.phases(worker, version).at("engine_s").is_null(); }));
}

TEST(History, OutlivesTheOriginsProcess) {
  Cluster cluster;
  cluster.start_fleet({"a", "b"});
  for (std::uint64_t version : {1, 2}) {
    cluster.publish_bytes(version, kMiB);
  }
  const std::string directory = cluster.state("origin") + "/history";
  ASSERT_TRUE(Cluster::eventually([&] { return std::filesystem::exists(directory + "/2"); }));
  const std::string written = read_file(directory + "/2");
  for (const char* worker : {"a", "b"}) ASSERT_NO_FATAL_FAILURE(take(cluster, worker, 2));
  ASSERT_TRUE(Cluster::eventually([&] { return read_file(directory + "/2") != written; })) << "with its engines";
  const Json before = history_of(cluster);
  const Json phases = cluster.phases("a", 2);
  ASSERT_FALSE(phases.is_null());
  ASSERT_THAT(trace_of(cluster, 2), Exits(0));

  // Without a word: what had ended is on the disk already.
  ASSERT_TRUE(cluster.end("origin", SIGKILL));
  cluster.restart("origin");
  const Json after = history_of(cluster);
  ASSERT_EQ(after["publications"].size(), 2u) << after;
  for (const char* key : {"version", "published_unix_ms", "kind", "t100_s", "take_over_s", "slowest", "workers"}) {
    EXPECT_EQ(after["publications"][1][key], before["publications"][1][key]) << key;
  }
  EXPECT_EQ(cluster.phases("a", 2), phases);

  cluster.publish_bytes(3, kMiB);
  EXPECT_EQ(history_of(cluster)["publications"].size(), 3u);
  EXPECT_THAT(trace_of(cluster, 4).err, HasSubstr("this origin remembers versions 1 to 3"));
}

TEST(History, ATraceHasThePhasesOfAllNodes) {
  Cluster cluster;
  cluster.start_fleet({"a", "b"});
  ASSERT_EQ(cluster.publish(write_snapshot(cluster.temp().file("model.safetensors"), 4 * kMiB, 1), 1).status, 0);
  EXPECT_TRUE(cluster.phases("a", 1).at("engine_s").is_null()) << "no engine has taken it";
  ASSERT_NO_FATAL_FAILURE(take(cluster, "a", 1));
  const std::string file = cluster.temp().file("trace.json");
  ASSERT_EQ(trace_of(cluster, 1, {"-o", file}).status, 0);
  const Json trace = Json::parse(read_file(file), nullptr, false);
  ASSERT_TRUE(trace.is_object());
  const auto slices = [&](int process, const char* name) {
    return std::ranges::count_if(trace["traceEvents"], [&](const Json& event) {
      return event["ph"] == "X" && event["pid"] == process && event["name"] == name && event["ts"] >= 0 &&
             event["dur"] >= 0;
    });
  };
  EXPECT_EQ(slices(1, "take"), 1);
  EXPECT_EQ(slices(2, "transfer"), 2);
  EXPECT_EQ(slices(2, "switch"), 2);
  EXPECT_EQ(slices(2, "engine"), 1) << "of the worker that has an engine";
  EXPECT_EQ(trace["otherData"]["version"], 1);
  EXPECT_EQ(trace_of(cluster, 0).status, 2);
}

}  // namespace
}  // namespace weightcast
