// Daemons whose versions lie in memory: what they write to the disk, and what a kill and a lost memory leave of them.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "tests/damage_file.h"
#include "tests/e2e/patch/patch_fixture.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

struct MemoryTest : PatchTest {
  static Cluster::Flags in_memory(Cluster::Flags flags = {}) {
    flags.insert(flags.end(), {"--versions-in", "memory"});
    return flags;
  }
  std::uint64_t written(const std::string& name) {
    return cluster.self(name).at("disk_bytes_written").get<std::uint64_t>();
  }
  void step_to(std::uint64_t version) {
    model.step();
    publish(version);
    for (const char* name : {"origin", "a"}) {
      ASSERT_TRUE(Cluster::eventually([&] { return cluster.is_durable(name, version); })) << name << cluster.log(name);
    }
  }

  const fs::path memory = cluster.memory();
};

TEST_F(MemoryTest, AStepWritesItsPatchAndALostMemoryCostsNothing) {
  cluster.start_origin(in_memory());
  cluster.start_worker("a", in_memory());
  publish(1);
  for (const char* name : {"origin", "a"}) {
    ASSERT_TRUE(Cluster::eventually([&] { return cluster.is_durable(name, 1); })) << name << cluster.log(name);
    EXPECT_EQ(cluster.self(name).at("versions_in"), "memory");
  }
  const std::uint64_t at_origin = written("origin"), at_worker = written("a");
  for (std::uint64_t version = 2; version <= 5; ++version) ASSERT_NO_FATAL_FAILURE(step_to(version));
  // Each step in whole files would be a model.
  EXPECT_LT(written("origin") - at_origin, model.file_bytes());
  EXPECT_LT(written("a") - at_worker, model.file_bytes());

  EXPECT_TRUE(cluster.end("a", SIGKILL).has_value());
  cluster.restart("a");
  EXPECT_TRUE(cluster.holds("a", model.path())) << "a kill leaves what is in memory";

  for (const char* name : {"a", "origin"}) EXPECT_TRUE(cluster.end(name, SIGKILL).has_value());
  for (const fs::directory_entry& entry : fs::directory_iterator(memory)) fs::remove_all(entry.path());
  for (const char* name : {"origin", "a"}) {
    cluster.restart(name);
    EXPECT_TRUE(cluster.holds(name, model.path())) << name << cluster.log(name);
    EXPECT_THAT(cluster.log(name), testing::HasSubstr("version 5 is made anew"));
  }
  ASSERT_NO_FATAL_FAILURE(step_to(6));
  EXPECT_TRUE(cluster.holds("a", model.path()));
}

TEST_F(MemoryTest, TheFirstVersionDecidesWhereVersionsLieAndAKillLosesNothing) {
  cluster.start_fleet({"a"});
  cluster.start_worker("small", {"--memory-max", "1MiB"});
  EXPECT_EQ(cluster.self("a").at("versions_in"), "auto");
  publish(1);
  for (const char* name : {"origin", "a"}) {
    EXPECT_EQ(cluster.self(name).at("versions_in"), "memory") << cluster.log(name);
    EXPECT_THAT(cluster.self(name).at("versions_in_why"), testing::StartsWith("3 copies of 7.6 MiB take 25.2 MiB of "));
    EXPECT_THAT(cluster.log(name), testing::HasSubstr("versions lie in " + memory.string()));
    EXPECT_THAT(
        fs::read_symlink(cluster.state(name) + "/current"),
        testing::ResultOf([&](const fs::path& path) { return path.native().starts_with(memory.native()); }, true));
  }
  const std::string why = "3 copies of 7.6 MiB take 25.2 MiB, and --memory-max allows 1.0 MiB";
  EXPECT_EQ(cluster.self("small").at("versions_in"), "disk");
  EXPECT_EQ(cluster.self("small").at("versions_in_why"), why);
  EXPECT_THAT(cluster.log("small"), testing::HasSubstr("versions lie on the disk: " + why));
  EXPECT_THAT(cluster.run({"status", "--state", cluster.state("small")}).out,
              testing::HasSubstr("versions here are on the disk (" + why + ")"));

  // It may come before the version is durable.
  for (const char* name : {"origin", "a", "small"}) EXPECT_TRUE(cluster.end(name, SIGKILL).has_value());
  for (const char* name : {"origin", "a", "small"}) {
    cluster.restart(name);
    EXPECT_TRUE(cluster.holds(name, model.path())) << name << cluster.log(name);
    EXPECT_EQ(cluster.self(name).at("versions_in"), std::string(name) == "small" ? "disk" : "memory");
  }
  for (std::uint64_t version = 2; version <= 3; ++version) ASSERT_NO_FATAL_FAILURE(step_to(version));
  EXPECT_TRUE(cluster.gets("small", 3, model.path()));

  // Of a memory that is lost the first start decides anew, by the size that the log tells.
  EXPECT_TRUE(cluster.end("a", SIGKILL).has_value());
  EXPECT_TRUE(cluster.end("origin", SIGKILL).has_value());
  for (const fs::directory_entry& entry : fs::directory_iterator(memory)) fs::remove_all(entry.path());
  for (const char* name : {"origin", "a"}) {
    cluster.restart(name);
    EXPECT_TRUE(cluster.holds(name, model.path())) << name << cluster.log(name);
    EXPECT_EQ(cluster.self(name).at("versions_in"), "memory");
  }
}

TEST_F(MemoryTest, TheOnlyCopyLiesWhereOneFits) {
  cluster.start_origin({"--keep", "3"});
  cluster.start_worker("a", {"--single-copy", "--memory-max", "10MiB", "--anchor-interval", "8"});
  cluster.start_worker("small", {"--memory-max", "10MiB"});
  publish(1);
  EXPECT_EQ(cluster.self("a").at("versions_in"), "memory");
  EXPECT_THAT(cluster.self("a").at("versions_in_why"),
              testing::StartsWith("one copy of 7.6 MiB and what a step overwrites take 9.2 MiB of "));
  EXPECT_EQ(cluster.self("small").at("versions_in"), "disk");
  EXPECT_THAT(cluster.self("small").at("versions_in_why"),
              testing::StartsWith("3 copies of 7.6 MiB take 25.2 MiB, and --memory-max allows 10.0 MiB; with "
                                  "--single-copy one copy of 7.6 MiB"));
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.is_durable("a", 1); })) << cluster.log("a");
  const std::uint64_t before = written("a");
  for (std::uint64_t version = 2; version <= 5; ++version) ASSERT_NO_FATAL_FAILURE(step_to(version));
  EXPECT_LT(written("a") - before, model.file_bytes()) << "each step in its only file would be a model";
  const fs::path versions = fs::canonical(cluster.state("a") + "/current").parent_path();
  EXPECT_TRUE(versions.native().starts_with(memory.native()));
  EXPECT_EQ(std::distance(fs::directory_iterator(versions), {}), 1);

  EXPECT_TRUE(cluster.end("a", SIGKILL).has_value());
  cluster.restart("a");
  EXPECT_TRUE(cluster.holds("a", model.path())) << "a kill leaves what is in memory";
  EXPECT_TRUE(cluster.end("a", SIGKILL).has_value());
  fs::remove_all(versions.parent_path());
  cluster.restart("a");
  EXPECT_TRUE(cluster.holds("a", model.path())) << cluster.log("a");
  EXPECT_THAT(cluster.log("a"), testing::HasSubstr("version 5 is made anew"));
  ASSERT_NO_FATAL_FAILURE(step_to(6));
  EXPECT_TRUE(cluster.holds("a", model.path()));

  // One that comes whole would lie beside it.
  const std::string in_use = read_file(model.path());
  model.replace();
  EXPECT_EQ(cluster.publish(model.path(), 7, {"--wait", "1", "--timeout", "10"}).status, 1);
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.node("origin", "a").at("state") == "failed"; }));
  EXPECT_THAT(cluster.node("origin", "a").at("last_error").get<std::string>(),
              testing::AllOf(testing::HasSubstr("2 copies of 7.6 MiB take 16.8 MiB, and --memory-max allows 10.0 MiB"),
                             testing::HasSubstr("--versions-in disk")));
  EXPECT_EQ(read_file(cluster.state("a") + "/current/model.safetensors"), in_use);
  EXPECT_TRUE(cluster.end("a", SIGTERM).has_value());
  cluster.start_worker("a", {"--single-copy", "--versions-in", "disk"});
  ASSERT_TRUE(cluster.gets("a", 7, model.path()));
}

TEST_F(MemoryTest, AJoinerGetsAVersionWholeFromAnOriginWhoseMemoryWasLost) {
  cluster.start_origin(in_memory());
  cluster.start_worker("a", in_memory());
  publish(1);
  ASSERT_NO_FATAL_FAILURE(step_to(2));
  EXPECT_TRUE(cluster.end("origin", SIGKILL).has_value());
  for (const fs::directory_entry& entry : fs::directory_iterator(memory)) {
    if (fs::read_symlink(entry.path() / "state") == fs::absolute(cluster.state("origin"))) fs::remove_all(entry.path());
  }
  cluster.restart("origin");
  cluster.start_worker("b");
  ASSERT_TRUE(cluster.gets("b", 2, model.path())) << cluster.log("origin");
}

TEST_F(MemoryTest, VersionsInMemoryAreProvenByteForByte) {
  const ClusterKeys keys;
  cluster.use_keys(keys);
  cluster.start_origin(in_memory());
  cluster.start_worker("a", in_memory());
  publish(1);
  const Cluster::Flags verify{"verify", cluster.state("a"), "--keys", keys.file_of("a"), "--threads", "1"};
  EXPECT_THAT(cluster.run(verify), Prints(testing::HasSubstr("000000000001: proven")));
  const fs::path file = memory / fs::read_symlink(cluster.state("a") + "/current") / "model.safetensors";
  overwrite(file, 1'000'000, "!");
  EXPECT_THAT(cluster.run(verify), Exits(1, "its bytes are not those that were published"));
}

TEST_F(MemoryTest, AVersionAfterStepsOfChangedCellsIsProvenByTheAnchorAndTheSignedPatches) {
  const ClusterKeys keys;
  cluster.use_keys(keys);
  cluster.start_origin(in_memory({"--anchor-interval", "6"}));
  cluster.start_worker("a", in_memory({"--anchor-interval", "6"}));
  wc::Client trainer(cluster.state("origin"));
  std::vector<std::uint16_t> cells(1'000'000, 0x3c00);
  const std::vector<wc::Tensor> tensors{
      {.name = "weight", .dtype = "BF16", .shape = {cells.size()}, .data = cells.data(), .size_bytes = 0}};
  trainer.publish(tensors, {}, 30s);
  EXPECT_TRUE(trainer.wait(1, {.fraction = 1, .on_progress = {}}, 60s).reached);
  for (const char* name : {"origin", "a"}) {
    ASSERT_TRUE(Cluster::eventually([&] { return cluster.is_durable(name, 1); })) << name << cluster.log(name);
  }
  const auto step_to = [&](std::uint64_t version) {
    std::vector<std::uint32_t> indices;
    std::vector<std::uint16_t> values;
    for (auto i = std::uint32_t(version); i < cells.size(); i += 100) {
      indices.push_back(i);
      values.push_back(++cells[i]);
    }
    const std::vector<wc::Change> changes{{.name = "weight",
                                           .dtype = "BF16",
                                           .indices = indices.data(),
                                           .index_bytes = 4,
                                           .values = values.data(),
                                           .count = indices.size()}};
    EXPECT_EQ(trainer.publish_sparse(version - 1, changes, {}, 30s), version);
    EXPECT_TRUE(trainer.wait(version, {.fraction = 1, .on_progress = {}}, 60s).reached);
    for (const char* name : {"origin", "a"}) {
      ASSERT_TRUE(Cluster::eventually([&] { return cluster.is_durable(name, version); })) << name << cluster.log(name);
    }
  };
  for (std::uint64_t version = 2; version <= 5; ++version) ASSERT_NO_FATAL_FAILURE(step_to(version));
  const auto verify = [&](const char* name) {
    const std::string file = std::string(name) == "origin" ? keys.origin_file() : keys.file_of(name);
    return cluster.run({"verify", fs::canonical(cluster.state(name) + "/current"), "--keys", file});
  };
  for (const char* name : {"origin", "a"}) {
    EXPECT_THAT(verify(name), Prints(testing::AllOf(testing::HasSubstr("are version 5 of run "),
                                                    testing::HasSubstr("by SHA-256 of every byte of the anchor 1 and 4 "
                                                                       "signed patches from there"))))
        << name;
  }
  const fs::path state = cluster.state("a");
  const auto finds = [&](const fs::path& path, std::uint64_t offset, const std::string& said) {
    flip_bit(path, offset);
    const Ran ran = verify("a");
    EXPECT_THAT(ran, Exits(1, said)) << path;
    EXPECT_THAT(ran.out, testing::HasSubstr("not proven")) << path;
    flip_bit(path, offset);
  };
  EXPECT_TRUE(cluster.end("a", SIGTERM).has_value()) << "it would find the rot, and get the version again";
  const fs::path current = fs::canonical(state / "current");
  finds(current / "model.safetensors", 1'000'001, "model.safetensors: byte 1000001 is not what");
  finds(state / "patches/000000000004-000000000003/patch", 100,
        "000000000004-000000000003: its chunk 0 is not what was signed");
  finds(state / "anchors/000000000001/model.safetensors", 1'000'001, "anchors/000000000001: its bytes are not those");
  EXPECT_EQ(verify("a").status, 0);

  // Behind the next anchor there is another version whose SHA-256 the origin has signed.
  cluster.restart("a");
  for (std::uint64_t version = 6; version <= 8; ++version) ASSERT_NO_FATAL_FAILURE(step_to(version));
  ASSERT_TRUE(Cluster::eventually([&] { return !fs::exists(state / "anchors/000000000001"); })) << cluster.log("a");
  for (const char* name : {"origin", "a"}) {
    EXPECT_THAT(verify(name), Prints(testing::AllOf(testing::HasSubstr("are version 8 of run "),
                                                    testing::HasSubstr("by SHA-256 of every byte of "))))
        << name;
  }
}

TEST_F(MemoryTest, ADirectoryThatOthersMayWriteToIsRefused) {
  cluster.start_origin();
  const Cluster::Flags flags = in_memory({"--role", "worker", "--origin", cluster.address("origin")});
  cluster.launch("a", flags);
  ASSERT_TRUE(Cluster::eventually([&] { return !cluster.self("a").is_null(); }));
  EXPECT_TRUE(cluster.end("a", SIGKILL).has_value());
  for (const fs::directory_entry& entry : fs::directory_iterator(memory)) {
    fs::permissions(entry.path(), fs::perms::all);
  }
  cluster.launch("a", flags);
  EXPECT_NE(cluster.process("a").wait(std::chrono::seconds(60)), 0);
  EXPECT_THAT(cluster.log("a"), testing::HasSubstr("another user made it, or may write to it"));
}

}  // namespace
}  // namespace weightcast
