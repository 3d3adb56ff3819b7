// SIGTERM at any moment: a daemon ends by itself, within its bound, and leaves a directory that it goes on from.
#include <gtest/gtest.h>
#include <signal.h>

#include <random>
#include <thread>

#include "base/units.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/patch/safetensors_bytes.h"
#include "transport/node/daemon.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

// What a loaded host may add.
constexpr auto kStopLimit = std::chrono::duration_cast<std::chrono::milliseconds>(kStopTimeout) + 1s;

TEST(Stop, EndsInTimeAndCleanlyAtEveryPhaseOfAPublication) {
  Cluster cluster;
  cluster.start_fleet({"a"}, {"--pack", "always"});
  std::uint64_t version = 0;
  // From before the source is opened, over copying and packing, until it is being sent.
  for (const auto moment : {0ms, 3ms, 10ms, 30ms, 60ms, 100ms, 150ms, 220ms, 350ms, 600ms}) {
    const std::string source =
        write_snapshot(cluster.temp().file("model.safetensors"), 96 * kMiB, static_cast<unsigned>(version) + 1);
    Ran published;
    std::thread publish([&] { published = cluster.publish(source, ++version, {}); });
    std::this_thread::sleep_for(moment);
    EXPECT_EQ(cluster.end("origin", SIGTERM, kStopLimit), 0) << moment.count() << " ms\n" << cluster.log("origin");
    publish.join();
    EXPECT_EQ(cluster.log("origin").find("ending all the same"), std::string::npos);
    EXPECT_EQ(cluster.log("origin").find("Sanitizer"), std::string::npos) << cluster.log("origin");
    cluster.restart("origin");
  }
  const std::string source = write_snapshot(cluster.temp().file("model.safetensors"), 96 * kMiB, 99);
  EXPECT_THAT(cluster.publish(source, ++version), Exits(0));
  EXPECT_TRUE(cluster.holds("a", source));
}

}  // namespace
}  // namespace weightcast
