// Wall clocks that jump by hours and days while daemons run. Waits go by a clock that does not.
#include <gmock/gmock.h>

#include <thread>

#include "tests/e2e/fleet/cluster.h"
#include "tests/e2e/fleet/wall_clock.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// The same for all, or it would be another model.
constexpr std::uint64_t kBytes = 8 << 20;
constexpr std::int64_t kHour = 3600, kDay = 24 * kHour;

struct ClockTest : testing::Test {
  Cluster cluster;
  std::map<std::string, WallClock> clocks;
  std::uint64_t version = 0;

  void start(const Cluster::Flags& origin_flags = {}) {
    for (const char* name : {"origin", "w1", "w2"}) cluster.put_on_host(name, clocks[name].words());
    cluster.start_fleet({"w1", "w2"}, origin_flags);
  }
  std::string snapshot() {
    return write_snapshot(cluster.temp().file("model.safetensors"), kBytes, static_cast<unsigned>(version + 1));
  }
  /// Publishes, and calls `meanwhile` after the publication has begun.
  void publish_to_both(const std::function<void()>& meanwhile = {}) {
    const std::string source = snapshot();
    Ran published;
    std::thread publication([&] { published = cluster.publish(source, version + 1, {"--wait", "1"}); });
    if (meanwhile) {
      const std::string begun = "publishing version " + std::to_string(version + 1) + ":";
      EXPECT_TRUE(Cluster::eventually([&] { return cluster.log("origin").find(begun) != std::string::npos; }))
          << cluster.log("origin");
      meanwhile();
    }
    publication.join();
    ++version;
    EXPECT_EQ(published.status, 0) << published.err << cluster.log("origin");
    for (const char* worker : {"w1", "w2"}) EXPECT_TRUE(cluster.holds(worker, source)) << worker;
  }
  std::size_t joins() const {
    const std::string log = cluster.log("origin");
    std::size_t count = 0;
    for (std::size_t at = 0; (at = log.find(" joined", at)) != std::string::npos; ++at) ++count;
    return count;
  }
};

TEST_F(ClockTest, JumpsOfAnyNodesClockCostNobodyItsPlace) {
  start();
  publish_to_both();
  const std::size_t joined = joins();
  ASSERT_GT(joined, 0u) << cluster.log("origin");
  for (const std::int64_t offset : {5 * kHour, -5 * kHour, 3 * kDay, -400 * kDay, 400 * kDay, std::int64_t{0}}) {
    for (const char* name : {"origin", "w1", "w2"}) {
      publish_to_both([&] { clocks[name].set(offset); });
    }
    publish_to_both();
  }
  EXPECT_EQ(joins(), joined) << cluster.log("origin");
  for (const char* name : {"w1", "w2"}) {
    EXPECT_NE(cluster.node("origin", name).value("state", ""), "lost") << cluster.log("origin");
  }
}

TEST_F(ClockTest, KeysAreJudgedByTheClockAndANodeGoesOnWhenItIsRightAgain) {
  const ClusterKeys keys;
  cluster.use_keys(keys);
  start();
  publish_to_both();
  // Within the time of the keys, an hour before their beginning included.
  for (const std::int64_t offset : {300 * kDay, std::int64_t{-1800}, std::int64_t{0}}) {
    publish_to_both([&] {
      for (const auto& [name, clock] : clocks) clock.set(offset);
    });
  }
  const std::size_t joined = joins();
  // Two days before the keys began, and after their end: of what comes then the worker takes nothing, and says why.
  for (const auto& [offset, why] :
       std::vector<std::pair<std::int64_t, std::string>>{{-2 * kDay, "not valid before"}, {400 * kDay, "expired on"}}) {
    clocks["w1"].set(offset);
    const std::string source = snapshot();
    EXPECT_EQ(cluster.publish(source, ++version, {"--wait", "0.5"}).status, 0);
    EXPECT_TRUE(Cluster::eventually([&] { return cluster.log("w1").find(why) != std::string::npos; }))
        << cluster.log("w1");
    EXPECT_TRUE(Cluster::eventually([&] { return cluster.version("w2") == version; })) << cluster.log("w2");
    EXPECT_LT(cluster.version("w1"), version);
    clocks["w1"].set(0);
    // The next one finds it as it was.
    publish_to_both();
  }
  EXPECT_EQ(joins(), joined) << cluster.log("origin");
}

}  // namespace
}  // namespace weightcast
