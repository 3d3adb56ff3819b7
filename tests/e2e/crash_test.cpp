// kill -9 at any moment: no version is ever half-visible, and nothing that was verified is fetched again.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "base/digest/checksum.h"
#include "base/units.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/e2e/fleet/reader.h"
#include "tests/patch/safetensors_bytes.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

TEST(Crash, AtRandomMomentsLeavesEveryReaderWithWholeVersions) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  Cluster cluster;
  cluster.start_origin({"--uplink", "400mbit", "--topology", "chain"});
  for (const char* name : {"a", "b", "c"}) cluster.start_worker(name, {"--uplink", "400mbit", "--downlink", "400mbit"});
  std::set<Checksum> published;
  {
    Reader origin_reader(cluster.state("origin")), a_reader(cluster.state("a")), c_reader(cluster.state("c"));
    std::uint64_t version = 0;
    std::string source;
    for (int round = 0; round < 10; ++round) {
      source = write_snapshot(cluster.temp().file("model.safetensors"), 8 * kMiB, unsigned(round) + 1);
      published.insert(checksum_of(as_bytes(read_file(source))));
      const std::vector<std::string> names{"origin", "a", "b", "c"};
      const std::string victim = names[random() % names.size()];
      const auto moment = std::chrono::milliseconds(random() % 250);
      std::thread crash([&] {
        std::this_thread::sleep_for(moment);
        cluster.process(victim).signal(SIGKILL);
      });
      const Ran first = cluster.publish(source, ++version, {});
      crash.join();
      ASSERT_TRUE(cluster.process(victim).wait(60s));
      cluster.restart(victim);
      // A publication that the origin's death cut short either completed or never existed.
      if (first.status != 0 && cluster.version("origin") < version) {
        EXPECT_EQ(victim, "origin") << first.err;
        ASSERT_THAT(cluster.publish(source, version, {}), Exits(0));
      }
      for (const char* name : {"a", "b", "c"}) {
        ASSERT_TRUE(cluster.gets(name, version, source)) << name << " after " << victim << " was killed "
                                                         << moment.count() << " ms into version " << version << '\n';
      }
      for (const Reader* reader : {&origin_reader, &a_reader, &c_reader}) reader->read_once_more();
    }
    for (Reader* reader : {&origin_reader, &a_reader, &c_reader}) {
      reader->stop();
      EXPECT_EQ(reader->seen().size(), 10u) << "it read each version";
      for (const auto& [digest, times] : reader->seen()) {
        EXPECT_TRUE(published.contains(digest))
            << "a reader saw something that was never published, " << times << " times";
      }
    }
  }
}

TEST(Crash, OfAWorkerInTheMiddleCostsNoVerifiedChunk) {
  Cluster cluster;
  cluster.start_fleet({"a"}, {"--uplink", "100mbit"});
  const std::string source = cluster.publish_bytes(1, 32 * kMiB, {});
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.self("a").at("bytes_received") > 16 * kMiB; }));
  const auto before = cluster.self("a").at("bytes_received").get<std::uint64_t>();
  ASSERT_EQ(cluster.end("a", SIGKILL), 128 + SIGKILL);
  cluster.restart("a");
  ASSERT_TRUE(cluster.gets("a", 1, source));
  const auto after = cluster.self("a").at("bytes_received").get<std::uint64_t>();
  // What was verified and not yet written when it died is at most what may wait for the disk.
  EXPECT_LE(after, 32 * kMiB + 4096 - before + 2 * kMiB) << before << " bytes had come before";
}

TEST(Crash, OfTheOriginLosesNoVersionThatItPublished) {
  Cluster cluster;
  cluster.start_fleet({"a"});
  const std::string source = cluster.publish_bytes(3, 1 * kMiB);
  ASSERT_EQ(cluster.end("origin", SIGKILL), 128 + SIGKILL);
  cluster.restart("origin");
  EXPECT_EQ(cluster.version("origin"), 3u);
  cluster.start_worker("late");
  EXPECT_TRUE(cluster.gets("late", 3, source));
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.self("a").at("state") == "idle"; }));
  EXPECT_EQ(cluster.publish(source, 4).status, 0);
}

}  // namespace
}  // namespace weightcast
