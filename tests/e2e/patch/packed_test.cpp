// Whole versions over links that are slower than packing: they travel packed, and are installed bit for bit.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/e2e/patch/patch_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct PackedTest : PatchTest {
  // 4.6 MB of the model's 8 MB in a second and a half.
  const Cluster::Flags link{"--uplink", "25mbit", "--downlink", "25mbit"};

  // Seven seconds, for tests that have to be in the middle of it.
  const Cluster::Flags slow_link{"--uplink", "5mbit", "--downlink", "5mbit"};

  void start(Cluster::Flags origin_flags = {}) { start_on(link, std::move(origin_flags)); }
  void start_on(const Cluster::Flags& rates, Cluster::Flags origin_flags = {}) {
    origin_flags.insert(origin_flags.begin(), {rates[0], rates[1], "--topology", "chain"});
    cluster.start_origin(origin_flags);
    for (const char* name : {"a", "b"}) cluster.start_worker(name, rates);
  }
};

TEST_F(PackedTest, FirstVersionAndALateJoinerGetItPackedBitForBit) {
  start();
  const nlohmann::json result = publish(1);
  EXPECT_EQ(result.at("kind"), "packed");
  EXPECT_LT(result.at("payload_bytes").get<std::uint64_t>(), 6 * model.file_bytes() / 10);
  cluster.start_worker("late", link);
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("late") == 1; }));
  for (const char* name : {"a", "b", "late"}) {
    EXPECT_TRUE(cluster.holds(name, model.path()));
    EXPECT_EQ(cluster.self(name).at("payload"), "packed");
    EXPECT_EQ(cluster.node("origin", name).at("payload"), "packed");
    EXPECT_LT(received(name), 6 * model.file_bytes() / 10);
  }
  model.step();
  EXPECT_EQ(publish(2).at("kind"), "patch");
  for (const char* name : {"a", "b", "late"}) EXPECT_TRUE(cluster.holds(name, model.path()));
}

TEST_F(PackedTest, StepThatMovesMostCellsALittleTravelsAsAPatch) {
  start();
  publish(1);
  model.move_most();
  const nlohmann::json result = publish(2);
  EXPECT_EQ(result.at("kind"), "patch");
  EXPECT_LT(result.at("payload_bytes").get<std::uint64_t>(), 3 * model.file_bytes() / 10);
  for (const char* name : {"a", "b"}) EXPECT_TRUE(cluster.holds(name, model.path()));
  model.replace();
  EXPECT_EQ(publish(3).at("kind"), "packed") << "a patch would be no smaller";
}

TEST_F(PackedTest, RestartedOriginPacksAgainForWhoIsInTheMiddle) {
  start_on(slow_link);
  publish(1, {});
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.self("b").at("chunks_verified") > 0; }));
  cluster.end("origin", SIGKILL);
  cluster.restart("origin");
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(cluster.gets(name, 1, model.path()));
    EXPECT_LT(received(name), 7 * model.file_bytes() / 10);
  }
}

TEST_F(PackedTest, RandomBytesTravelAsTheyAre) {
  start();
  const std::string source = write_snapshot(model.path(), 1'000'000, 1);
  EXPECT_EQ(publish(1).at("kind"), "full");
  EXPECT_TRUE(cluster.holds("a", source));
}

TEST_F(PackedTest, WithoutRatesOnlyAnOriginThatIsToldToPacks) {
  cluster.start_origin({"--pack", "always"});
  cluster.start_worker("a", {"--single-copy"});
  EXPECT_EQ(publish(1).at("kind"), "packed");
  EXPECT_TRUE(cluster.holds("a", model.path()));
  model.replace();
  publish(2);
  EXPECT_TRUE(cluster.holds("a", model.path()));
}

TEST_F(PackedTest, SnapshotIsPackedAndUnpackedByHand) {
  const std::string patch = cluster.temp().file("packed"), out = cluster.temp().file("unpacked.safetensors");
  ASSERT_EQ(cluster.run({"patch", "make", "none", model.path(), "-o", patch, "--version", "3"}).status, 0);
  EXPECT_LT(std::filesystem::file_size(patch), 6 * model.file_bytes() / 10);
  ASSERT_THAT(cluster.run({"patch", "apply", "none", patch, "-o", out}), Exits(0));
  EXPECT_EQ(read_file(out), read_file(model.path()));
  EXPECT_THAT(cluster.run({"patch", "inspect", patch}).out, HasSubstr("version 3 from nothing"));
  EXPECT_THAT(cluster.run({"patch", "apply", model.path(), patch, "-o", out}), Exits(1, "for a base of 0 bytes"));
  const std::string directory = cluster.temp().file("snapshot");
  std::filesystem::create_directory(directory);
  std::filesystem::copy(model.path(), directory + "/model.safetensors");
  std::ofstream(directory + "/config.json") << "{}";
  EXPECT_THAT(cluster.run({"patch", "make", "none", directory, "-o", patch}), Exits(1, directory + ": it has 2 files"));
}

}  // namespace
}  // namespace weightcast
