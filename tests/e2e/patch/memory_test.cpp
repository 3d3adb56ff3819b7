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
      ASSERT_TRUE(Cluster::eventually([&] { return cluster.version(name) == version; })) << name << cluster.log(name);
    }
  }
  /// The origin's disk has it whole.
  void expect_kept(std::uint64_t version) {
    ASSERT_TRUE(Cluster::eventually([&] { return cluster.is_durable("origin", version); })) << cluster.log("origin");
  }

  const fs::path memory = cluster.memory();
};

TEST_F(MemoryTest, AStepWritesNothingAndALostMemoryIsFilledByTheOriginsDisk) {
  cluster.start_origin(in_memory({"--keep-durable-every", "2"}));
  cluster.start_worker("a", in_memory());
  publish(1);
  for (const char* name : {"origin", "a"}) EXPECT_EQ(cluster.self(name).at("versions_in"), "memory");
  ASSERT_NO_FATAL_FAILURE(expect_kept(1));
  const std::uint64_t at_worker = written("a");
  for (std::uint64_t version = 2; version <= 5; ++version) ASSERT_NO_FATAL_FAILURE(step_to(version));
  // Each step in whole files would be a model.
  EXPECT_LT(written("a") - at_worker, model.file_bytes() / 8);
  ASSERT_NO_FATAL_FAILURE(expect_kept(5));

  EXPECT_TRUE(cluster.end("a", SIGKILL).has_value());
  cluster.restart("a");
  EXPECT_TRUE(cluster.holds("a", model.path())) << "a kill leaves what is in memory";

  for (const char* name : {"a", "origin"}) EXPECT_TRUE(cluster.end(name, SIGKILL).has_value());
  for (const fs::directory_entry& entry : fs::directory_iterator(memory)) fs::remove_all(entry.path());
  for (const char* name : {"origin", "a"}) {
    cluster.restart(name);
    EXPECT_TRUE(cluster.gets(name, 5, model.path())) << name << cluster.log(name);
  }
  ASSERT_NO_FATAL_FAILURE(step_to(6));
  EXPECT_TRUE(cluster.holds("a", model.path()));
}

TEST_F(MemoryTest, TheFirstVersionDecidesWhereVersionsLieAndAKillLosesNothing) {
  cluster.start_origin({"--keep-durable-every", "1"});
  cluster.start_worker("a");
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

  // Of a memory that is lost the first start decides anew, by the size of what the disk has.
  ASSERT_NO_FATAL_FAILURE(expect_kept(3));
  EXPECT_TRUE(cluster.end("a", SIGKILL).has_value());
  EXPECT_TRUE(cluster.end("origin", SIGKILL).has_value());
  for (const fs::directory_entry& entry : fs::directory_iterator(memory)) fs::remove_all(entry.path());
  for (const char* name : {"origin", "a"}) {
    cluster.restart(name);
    EXPECT_TRUE(cluster.gets(name, 3, model.path())) << name << cluster.log(name);
    EXPECT_EQ(cluster.self(name).at("versions_in"), "memory");
  }
}

TEST_F(MemoryTest, TheOnlyCopyLiesWhereOneFits) {
  cluster.start_origin({"--keep", "3"});
  cluster.start_worker("a", {"--single-copy", "--memory-max", "10MiB"});
  cluster.start_worker("small", {"--memory-max", "10MiB"});
  publish(1);
  EXPECT_EQ(cluster.self("a").at("versions_in"), "memory");
  EXPECT_THAT(cluster.self("a").at("versions_in_why"),
              testing::StartsWith("one copy of 7.6 MiB and a step's patch take 9.2 MiB of "));
  EXPECT_EQ(cluster.self("small").at("versions_in"), "disk");
  EXPECT_THAT(cluster.self("small").at("versions_in_why"),
              testing::StartsWith("3 copies of 7.6 MiB take 25.2 MiB, and --memory-max allows 10.0 MiB; with "
                                  "--single-copy one copy of 7.6 MiB"));
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
  EXPECT_TRUE(cluster.gets("a", 5, model.path())) << cluster.log("a");
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
  cluster.start_origin(in_memory({"--keep-durable-every", "1"}));
  cluster.start_worker("a", in_memory());
  publish(1);
  ASSERT_NO_FATAL_FAILURE(step_to(2));
  ASSERT_NO_FATAL_FAILURE(expect_kept(2));
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
