// Versions that differ a little from the one before: sent as patches, installed bit for bit, and made up for by the
// whole version wherever a patch does not fit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "base/units.h"
#include "patch/snapshot/mapped_file.h"
#include "tests/damage_file.h"
#include "tests/e2e/patch/patch_fixture.h"
#include "tests/real_files.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

TEST_F(PatchTest, StepTravelsAsAPatchAndIsInstalledBitForBit) {
  cluster.start_fleet({"a", "b", "c"});
  EXPECT_EQ(publish(1).at("kind"), "full");
  for (std::uint64_t version = 2; version <= 4; ++version) {
    model.step();
    const nlohmann::json result = publish(version);
    EXPECT_EQ(result.at("kind"), "patch");
    EXPECT_LT(result.at("payload_bytes").get<std::uint64_t>(), model.file_bytes() / 30);
    for (const char* name : {"origin", "a", "b", "c"}) EXPECT_TRUE(cluster.holds(name, model.path()));
    for (const char* name : {"a", "b", "c"}) {
      const nlohmann::json node = cluster.node("origin", name);
      EXPECT_EQ(node.at("payload"), "direct");
      EXPECT_EQ(node.at("payload_bytes"), result.at("payload_bytes"));
      EXPECT_EQ(cluster.self(name).at("payload"), "patch");
    }
    EXPECT_THAT(cluster.run({"status", "--state", cluster.state("origin")}).out, HasSubstr("  direct "));
  }
  const Ran versions = cluster.run({"versions", "--state", cluster.state("a"), "--json"});
  EXPECT_EQ(nlohmann::json::parse(versions.out).at("versions").back().at("kind"), "patch");
}

TEST_F(PatchTest, LateJoinerGetsTheWholeVersionAndTheNextPatch) {
  cluster.start_fleet({"a"});
  publish(1), model.step(), publish(2);
  cluster.start_worker("late");
  ASSERT_TRUE(cluster.gets("late", 2, model.path()));
  const std::uint64_t before = received("late");
  EXPECT_GE(before, model.file_bytes());
  model.step();
  EXPECT_EQ(publish(3).at("kind"), "patch");
  EXPECT_LT(received("late") - before, model.file_bytes() / 30);
}

TEST_F(PatchTest, WorkerThatWasAwayCatchesUpByOneFoldedPatch) {
  cluster.start_origin({"--keep", "12"});
  const std::uint64_t patches_bytes = publish_while_away("a", 11);
  EXPECT_LT(received("a"), patches_bytes) << "the ten patches take that";
  EXPECT_EQ(cluster.node("origin", "a").at("payload"), "folded");
  EXPECT_EQ(cluster.node("origin", "b").at("payload"), "direct");
  EXPECT_GT(received("a"), 0u);
}

TEST_F(PatchTest, WorkerWhoseVersionTheOriginHasNoMoreCatchesUpByStoredPatchesInTurn) {
  cluster.start_origin({"--keep", "1"});
  publish_while_away("a", 4);
  EXPECT_LT(received("a"), model.file_bytes() / 5);
  EXPECT_EQ(cluster.node("origin", "a").at("payload"), "chain");
  model.step();
  publish(5);
  EXPECT_EQ(cluster.node("origin", "a").at("payload"), "direct");
}

TEST_F(PatchTest, WorkerBeyondTheAnchorIntervalGetsTheWholeVersion) {
  cluster.start_origin({"--keep", "1", "--anchor-interval", "2"});
  publish_while_away("a", 4);
  EXPECT_GE(received("a"), model.file_bytes());
  EXPECT_EQ(cluster.node("origin", "a").at("payload"), "full");
}

TEST_F(PatchTest, WorkerWithADamagedBaseRepairsItself) {
  cluster.start_fleet({"a", "b"});
  publish(1);
  overwrite(cluster.state("a") + "/current/model.safetensors", 5'000'000, "damage");
  model.step();
  publish(2);
  // Who finds it while the patch is under way is away for a moment, and publish() no longer waits for it.
  EXPECT_TRUE(cluster.gets("a", 2, model.path()));
  // By the segment where the damaged cell changed, by who makes version 1 durable, or by who reads all the time.
  EXPECT_THAT(cluster.log("a"),
              testing::AnyOf(HasSubstr("are not those that it was made from"), HasSubstr("do not match the snapshot's"),
                             HasSubstr("is not what was written there")));
  EXPECT_LT(received("b"), 2 * model.file_bytes()) << "the other one took the patch";
  EXPECT_GE(received("a"), 2 * model.file_bytes());
  model.step();
  EXPECT_EQ(publish(3).at("kind"), "patch");
  EXPECT_TRUE(cluster.holds("a", model.path()));
  EXPECT_LT(received("a"), 3 * model.file_bytes()) << "it takes patches again";
}

TEST_F(PatchTest, OriginWithADamagedShadowStillPublishesTheRightBytes) {
  cluster.start_fleet({"a"});
  publish(1);
  overwrite(cluster.state("origin") + "/current/model.safetensors", 5'000'000, "damage");
  model.step();
  publish(2);
  EXPECT_TRUE(cluster.holds("a", model.path()));
}

TEST_F(PatchTest, RestartedOriginGoesOnWithPatches) {
  cluster.start_fleet({"a"});
  publish(1), model.step(), publish(2);
  ASSERT_EQ(cluster.end("origin", SIGKILL), 128 + SIGKILL);
  cluster.restart("origin");
  ASSERT_TRUE(Cluster::eventually([&] {
    const nlohmann::json there = cluster.node("origin", "a");  // which may know that its origin died before "a" does
    return !there.is_null() && there.at("state") == "idle";
  }));
  model.step();
  EXPECT_EQ(publish(3).at("kind"), "patch");
  EXPECT_TRUE(cluster.holds("a", model.path()));
}

TEST_F(PatchTest, NoPatchesSendsEveryVersionWhole) {
  cluster.start_fleet({"a"}, {"--no-patches"});
  publish(1), model.step();
  EXPECT_EQ(publish(2).at("kind"), "full");
}

TEST_F(PatchTest, NaNIsRefusedBeforeAnythingIsCompared) {
  cluster.start_fleet({"a"});
  publish(1);
  model.step();
  model.cell(77) = 0x7fc0;
  model.save();
  EXPECT_THAT(cluster.publish(model.path(), 2), Exits(1, "--allow-nonfinite"));
  EXPECT_EQ(cluster.version("a"), 1u);
  EXPECT_EQ(publish(2, {"--wait", "1", "--allow-nonfinite"}).at("kind"), "patch");
  EXPECT_TRUE(cluster.holds("a", model.path())) << "bit for bit, that NaN included";
}

TEST_F(PatchTest, TrainerThatPublishesFasterThanLinksCarryStillReachesEveryone) {
  cluster.start_origin({"--uplink", "20mbit"});
  for (const char* name : {"a", "b"}) cluster.start_worker(name, {"--uplink", "20mbit", "--downlink", "20mbit"});
  for (std::uint64_t version = 1; version <= 12; ++version) model.step(), publish(version, {});
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(cluster.gets(name, 12, model.path()));
  }
}

/// Where the only copy lies: "disk" or "memory".
class SingleCopyTest : public PatchTest, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(, SingleCopyTest, testing::Values("disk", "memory"),
                         [](const auto& place) { return std::string(place.param); });

TEST_P(SingleCopyTest, IsChangedWhenTheEngineHasLetGoOfIt) {
  cluster.start_origin();
  cluster.start_worker("single", {"--single-copy", "--versions-in", GetParam()});
  cluster.start_worker("other");
  publish(1);
  const std::string versions = std::filesystem::canonical(cluster.state("single") + "/current").parent_path().string();
  EXPECT_EQ(cluster.self("single").at("versions_in"), GetParam());
  wc::Subscription engine(cluster.state("single"));
  const std::optional<wc::Event> first = engine.next(60s);
  ASSERT_TRUE(first && first->kind == WC_EVENT_INSTALLED);
  std::optional<MappedFile> mapped = *MappedFile::open(real_files(), first->directory + "/model.safetensors");
  const std::string seen(reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size());

  model.step();
  publish(2, {"--wait", "0.5", "--timeout", "30"});
  // It is told, and while it does not let go nothing changes.
  const std::optional<wc::Event> preparing = engine.next(60s);
  ASSERT_TRUE(preparing && preparing->kind == WC_EVENT_PREPARING);
  EXPECT_EQ(preparing->version, 2u);
  EXPECT_FALSE(engine.next(1s).has_value());
  EXPECT_EQ(std::memcmp(mapped->bytes().data(), seen.data(), seen.size()), 0);
  EXPECT_EQ(cluster.version("single"), 1u);
  mapped.reset();
  const std::optional<wc::Event> second = engine.next(60s);
  ASSERT_TRUE(second && second->kind == WC_EVENT_INSTALLED);
  EXPECT_EQ(second->version, 2u);
  EXPECT_TRUE(cluster.holds("single", model.path()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(versions), {}), 1);

  model.replace();
  EXPECT_EQ(publish(3).at("kind"), "full");
  EXPECT_TRUE(cluster.holds("single", model.path()));
  EXPECT_TRUE(
      Cluster::eventually([&] { return std::distance(std::filesystem::directory_iterator(versions), {}) == 1; }));
}

TEST_P(SingleCopyTest, ThatIsNotLetGoOfStaysAndTheOriginHearsWhoHasIt) {
  cluster.start_origin({"--keep", "3"});
  cluster.start_worker("single", {"--single-copy", "--single-copy-wait", "0.5", "--versions-in", GetParam()});
  publish(1);
  std::optional<MappedFile> mapped =
      *MappedFile::open(real_files(), cluster.state("single") + "/current/model.safetensors");
  const std::string seen = read_file(model.path());
  model.step();
  EXPECT_EQ(cluster.publish(model.path(), 2, {"--wait", "1", "--timeout", "3"}).status, 1);
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.node("origin", "single").at("state") == "failed"; }));
  const nlohmann::json node = cluster.node("origin", "single");
  EXPECT_EQ(node.at("version"), 1);
  EXPECT_THAT(node.at("last_error").get<std::string>(),
              AllOf(HasSubstr("waited 0.5 s"), HasSubstr(fmt::format("(process {})", ::getpid()))));
  EXPECT_EQ(std::memcmp(mapped->bytes().data(), seen.data(), seen.size()), 0);
  mapped.reset();
  model.step();
  publish(3);
  EXPECT_TRUE(cluster.holds("single", model.path()));
}

}  // namespace
}  // namespace weightcast
