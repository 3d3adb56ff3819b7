// What rots on a node's disk is found, said and served to nobody; newer versions are not held up by it.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "base/units.h"
#include "tests/damage_file.h"
#include "tests/e2e/fleet/cluster.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

struct DamageTest : testing::Test {
  Cluster cluster;
  std::string source;
  std::filesystem::path copy;  // the origin's own, of version 1

  void SetUp() override {
    cluster.start_origin({"--no-patches", "--pack", "never", "--versions-in", "disk"});
    source = write_snapshot(cluster.temp().file("model.safetensors"), 4 * kMiB, 1);
    ASSERT_EQ(cluster.publish(source, 1, {}).status, 0);
    copy = std::filesystem::path(cluster.state("origin")) / "versions/000000000001/model.safetensors";
    ASSERT_TRUE(Cluster::eventually([&] { return cluster.is_durable("origin", 1); }))
        << "what is not durable is looked at when the origin starts";
  }

  void expect_that_version_2_is_not_held_up() {
    cluster.start_worker("late");
    ASSERT_TRUE(Cluster::eventually([&] { return cluster.self("origin").at("last_error") != ""; }))
        << cluster.log("origin") << cluster.log("late");
    // By who serves a chunk, or by who reads versions all the time.
    EXPECT_THAT(cluster.self("origin").at("last_error").get<std::string>(),
                testing::AnyOf(HasSubstr("version 1, chunk"), HasSubstr("version 1 in")));
    EXPECT_THAT(cluster.log("origin"), HasSubstr("it is withdrawn"));
    EXPECT_EQ(cluster.version("late"), 0u);
    const std::string next = write_snapshot(cluster.temp().file("next.safetensors"), 4 * kMiB, 2);
    EXPECT_EQ(cluster.publish(next, 2).status, 0) << cluster.log("late");
    EXPECT_TRUE(cluster.holds("late", next));
  }
};

TEST_F(DamageTest, BitThatFlipsInTheOriginsCopyIsFoundByItsStart) {
  ASSERT_EQ(cluster.end("origin", SIGTERM), 0);
  flip_bit(copy, 3 * kMiB);
  cluster.restart("origin");
  EXPECT_EQ(cluster.version("origin"), 0u) << "a start reads what it finds, whatever its mark says";
  cluster.start_worker("late");
  const std::string next = write_snapshot(cluster.temp().file("next.safetensors"), 4 * kMiB, 2);
  EXPECT_EQ(cluster.publish(next, 2, {"--wait", "1", "--timeout", "60"}).status, 0) << cluster.log("late");
  EXPECT_TRUE(cluster.holds("late", next));
}

TEST_F(DamageTest, FileThatIsCutShortUnderTheOriginHoldsNoWorkerUp) {
  std::filesystem::resize_file(copy, 3 * kMiB);
  expect_that_version_2_is_not_held_up();
}

}  // namespace
}  // namespace weightcast
