// A trainer begins anew, in an empty state directory: its fleet follows, and keeps inference going until then.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "base/units.h"
#include "tests/e2e/fleet/cluster.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

/// The next event that is no lost connection.
std::optional<wc::Event> next_installed(wc::Subscription& engine) {
  for (;;) {
    std::optional<wc::Event> event = engine.next(60s);
    if (!event || event->kind == WC_EVENT_INSTALLED) return event;
  }
}

TEST(AnotherRun, TakesThePlaceOfAGreaterVersionOfTheRunBefore) {
  Cluster cluster;
  cluster.start_fleet({"a", "b"});
  const std::string old = cluster.publish_bytes(7, kMiB);
  const std::string first_run = cluster.status("origin").at("run");
  EXPECT_EQ(first_run.size(), 16u);
  EXPECT_EQ(cluster.status("a").at("run"), first_run);
  wc::Subscription engine(cluster.state("a"));
  std::optional<wc::Event> event = next_installed(engine);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->version, 7u);
  EXPECT_EQ(event->run, 1u);
  const std::string of_first_run = event->directory;

  ASSERT_TRUE(cluster.end("origin", SIGKILL));
  std::filesystem::remove_all(cluster.state("origin"));
  cluster.restart("origin");
  EXPECT_NE(cluster.status("origin").at("run"), first_run);
  ASSERT_TRUE(Cluster::eventually([&] {
    const nlohmann::json there = cluster.node("origin", "a");
    return !there.is_null() && there.at("state") == "foreign";
  }));
  EXPECT_TRUE(cluster.holds("a", old)) << "there is nothing to take its place";
  EXPECT_EQ(cluster.status("a").at("run"), first_run);

  const std::string fresh = write_snapshot(cluster.temp().file("fresh.safetensors"), kMiB, 2);
  ASSERT_EQ(cluster.publish(fresh, 1, {}).status, 0) << "nobody is waited for";
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(cluster.gets(name, 1, fresh));
    EXPECT_EQ(cluster.status(name).at("run"), cluster.status("origin").at("run"));
  }
  do event = next_installed(engine);
  while (event && event->version == 7);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->version, 1u);
  EXPECT_EQ(event->run, 2u);
  // From here on as ever: by patches, and over restarts.
  ASSERT_TRUE(cluster.end("a", SIGKILL));
  cluster.restart("a");
  EXPECT_TRUE(cluster.holds("a", fresh));
  EXPECT_EQ(cluster.publish(old, 2).status, 0);
  EXPECT_TRUE(cluster.holds("a", old));
  EXPECT_TRUE(Cluster::eventually([&] { return !std::filesystem::exists(of_first_run); }))
      << "the run before is forgotten";
}

}  // namespace
}  // namespace weightcast
