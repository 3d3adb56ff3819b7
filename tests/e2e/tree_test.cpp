// Directories as publications: any tree of files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/random.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/patch/safetensors_bytes.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string random_text(std::size_t bytes, std::uint64_t seed) {
  Random random(seed);
  std::string text(bytes, '\0');
  for (char& byte : text) byte = static_cast<char>(random.next());
  return text;
}

/// A directory that changes from version to version.
class Tree {
 public:
  explicit Tree(std::string path) : path_(std::move(path)) { fs::create_directories(path_); }

  void write(const std::string& name, std::string_view bytes) const {
    fs::create_directories(fs::path(file(name)).parent_path());
    std::ofstream out(file(name), std::ios::binary);
    out << bytes;
    ASSERT_TRUE(out.good());
  }
  void remove(const std::string& name) const { ASSERT_TRUE(fs::remove(file(name))); }
  void make_executable(const std::string& name, bool executable = true) const {
    fs::permissions(file(name), fs::perms::owner_exec, executable ? fs::perm_options::add : fs::perm_options::remove);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

/// Every file below a directory: its bytes, and whether it is executable.
std::map<std::string, std::pair<bool, std::string>> files_below(const std::string& directory) {
  std::map<std::string, std::pair<bool, std::string>> found;
  const fs::path root = fs::canonical(directory);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_directory()) continue;
    EXPECT_TRUE(entry.is_regular_file() && !entry.is_symlink()) << entry.path();
    const bool executable = (entry.status().permissions() & fs::perms::owner_exec) != fs::perms::none;
    found[entry.path().lexically_relative(root)] = {executable, read_file(entry.path())};
  }
  return found;
}

testing::AssertionResult holds(const Cluster& cluster, const std::string& name, const Tree& tree) {
  const auto expected = files_below(tree.path()), there = files_below(cluster.state(name) + "/current");
  for (const auto& [path, file] : expected) {
    const auto found = there.find(path);
    if (found == there.end()) return testing::AssertionFailure() << name << " lacks " << path;
    if (found->second.first != file.first) return testing::AssertionFailure() << name << ": mode of " << path;
    if (found->second.second != file.second) return testing::AssertionFailure() << name << ": bytes of " << path;
  }
  for (const auto& [path, _] : there) {
    if (!expected.contains(path)) return testing::AssertionFailure() << name << " has " << path;
  }
  return testing::AssertionSuccess();
}

std::string adapter(std::uint64_t seed) {
  const std::string cells = random_text(4096, seed);
  return safetensors_bytes(
      fmt::format(R"({{"lora_A":{{"dtype":"I16","shape":[2048],"data_offsets":[0,{}]}}}})", cells.size()), cells);
}

constexpr std::size_t kFiles = 1000;

/// `kFiles` of 1 to 5 KiB in 40 directories, and some that are special.
void fill(const Tree& tree) {
  for (std::size_t i = 0; i < kFiles; ++i) {
    tree.write(fmt::format("data/{}/{}.bin", i % 40, i), random_text(1024 + i * 37 % 4096, i));
  }
  tree.write("run.sh", "#!/bin/sh\n");
  tree.make_executable("run.sh");
  tree.write(".hidden/empty", "");
  tree.write("vocabulary.txt", random_text(300'000, 7));
  for (const char* name : {"one", "two"})
    tree.write(fmt::format("adapters/{}/adapter_model.safetensors", name), adapter(name[0]));
}

const Cluster::Flags kTakesFiles{"--files"};
const Cluster::Flags kPublishFiles{"--files", "--wait", "1"};

nlohmann::json published(const Cluster& cluster, const Tree& tree, std::uint64_t version,
                         const Cluster::Flags& flags = kPublishFiles) {
  const Ran ran = cluster.publish(tree.path(), version, flags);
  EXPECT_EQ(ran.status, 0) << ran.err;
  return ran.status == 0 ? nlohmann::json::parse(ran.out) : nlohmann::json();
}

/// One file of a thousand becomes other bytes, one goes, one comes, one gets longer at its front, one is executable
/// now.
void change(const Tree& tree) {
  tree.write("data/3/3.bin", random_text(1200, 99));
  tree.remove("data/5/5.bin");
  tree.write("another/new.txt", "new");
  tree.write("vocabulary.txt", "inserted at the front" + random_text(300'000, 7));
  tree.make_executable("data/7/7.bin");
  tree.make_executable("run.sh", false);
}

struct FileTree : testing::Test {
  Cluster cluster;
  const Tree tree{cluster.temp().file("tree")};
};

class FileTrees : public FileTree, public testing::WithParamInterface<const char*> {
 protected:
  /// Where the worker keeps versions.
  [[nodiscard]] Cluster::Flags flags() const {
    const std::string place = GetParam();
    if (place == "SingleCopy") return {"--files", "--single-copy"};
    return {"--files", "--versions-in", place == "Memory" ? "memory" : "disk"};
  }
};

TEST_P(FileTrees, ChangeByPatchesAndAreTheSameEverywhere) {
  cluster.start_origin();
  cluster.start_worker("a", flags());
  fill(tree);
  auto result = published(cluster, tree, 1);
  EXPECT_EQ(result.at("kind"), "full");
  EXPECT_TRUE(holds(cluster, "a", tree));

  change(tree);
  result = published(cluster, tree, 2);
  // The only copy is changed where it is, so other names and sizes come whole.
  const bool single = std::string(GetParam()) == "SingleCopy";
  EXPECT_EQ(result.at("kind"), single ? "full" : "patch");
  // What changed, and some bytes for each of a thousand names.
  if (!single) {
    EXPECT_LT(result.at("payload_bytes").get<std::uint64_t>(), 1200u + 30 * kFiles);
  }
  EXPECT_TRUE(holds(cluster, "a", tree));
  EXPECT_TRUE(holds(cluster, "origin", tree));

  // Whoever comes now takes it whole.
  cluster.start_worker("b", kTakesFiles);
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.version("b") == 2; }));
  EXPECT_TRUE(holds(cluster, "b", tree));

  // Equal names and sizes.
  tree.write("data/3/3.bin", random_text(1200, 100));
  result = published(cluster, tree, 3);
  EXPECT_EQ(result.at("kind"), "patch");
  for (const char* name : {"a", "b"}) EXPECT_TRUE(holds(cluster, name, tree));

  // What is on the disk, or in memory, is found again.
  ASSERT_EQ(cluster.end("a", SIGKILL), 128 + SIGKILL);
  cluster.restart("a");
  EXPECT_EQ(cluster.version("a"), 3u);
  EXPECT_TRUE(holds(cluster, "a", tree));
  tree.remove("vocabulary.txt");
  published(cluster, tree, 4);
  for (const char* name : {"a", "b"}) EXPECT_TRUE(holds(cluster, name, tree));
}

INSTANTIATE_TEST_SUITE_P(, FileTrees, testing::Values("Disk", "Memory", "SingleCopy"),
                         [](const auto& place) { return std::string(place.param); });

TEST_F(FileTree, IsRefusedByAWorkerThatWasNotToldToTakeFiles) {
  cluster.start_origin();
  cluster.start_worker("willing", kTakesFiles);
  cluster.start_worker("careful");
  tree.write("config.json", "{}");  // of a kind that it takes beside weights
  published(cluster, tree, 1, {"--files", "--wait", "0.5"});
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.node("origin", "careful").at("state") == "failed"; }));
  EXPECT_THAT(cluster.log("careful"), HasSubstr("started with --files"));
  EXPECT_FALSE(fs::exists(cluster.state("careful") + "/current"));
  EXPECT_TRUE(holds(cluster, "willing", tree));
}

TEST_F(FileTree, FollowsAModelOnlyWhereThatIsSaid) {
  cluster.start_origin();
  cluster.start_worker("a", kTakesFiles);
  const std::string model = cluster.publish_bytes(1, 100'000);
  tree.write("bin/tool", "code");
  const Ran files = cluster.publish(tree.path(), 2, kPublishFiles);
  EXPECT_NE(files.status, 0);
  EXPECT_THAT(files.err, HasSubstr("--new-model"));
  published(cluster, tree, 3, {"--files", "--new-model", "--wait", "1"});
  EXPECT_TRUE(holds(cluster, "a", tree));
  const Ran back = cluster.publish(model, 4);
  EXPECT_NE(back.status, 0);
  EXPECT_THAT(back.err, HasSubstr("--new-model"));
  ASSERT_EQ(cluster.publish(model, 5, {"--new-model", "--wait", "1"}).status, 0);
  EXPECT_TRUE(cluster.holds("a", model));
}

TEST_F(FileTree, RefusesLinksThatLeadOutOfIt) {
  cluster.start_origin();
  tree.write("a", "1");
  fs::create_symlink("/etc/hostname", tree.file("b"));
  const Ran ran = cluster.publish(tree.path(), 1, {"--files"});
  EXPECT_NE(ran.status, 0);
  EXPECT_THAT(ran.err, HasSubstr("'b' is a symbolic link to '/etc/hostname'"));
}

TEST_F(FileTree, ArrivesThoughItsWorkerIsKilledAgainAndAgain) {
  cluster.start_origin();
  cluster.start_worker("a", {"--files", "--downlink", "20mbit"});
  fill(tree);
  published(cluster, tree, 1, {"--files"});
  const auto received = [&] { return cluster.self("a").value("chunks_verified", 0); };
  int last = 0;
  for (int kills = 0; kills < 3; ++kills) {
    if (!Cluster::eventually([&] { return received() > last || cluster.version("a") == 1; })) break;
    if (cluster.version("a") == 1) break;
    last = received();
    ASSERT_EQ(cluster.end("a", SIGKILL), 128 + SIGKILL);
    cluster.restart("a");
  }
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("a") == 1; }));
  EXPECT_TRUE(holds(cluster, "a", tree));
  change(tree);
  published(cluster, tree, 2, {"--files"});
  ASSERT_EQ(cluster.end("a", SIGKILL), 128 + SIGKILL);
  cluster.restart("a");
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("a") == 2; }));
  EXPECT_TRUE(holds(cluster, "a", tree));
}

using EncryptedFileTree = KeyedFleet;

TEST_F(EncryptedFileTree, IsVerifiedWithItsDirectoriesAndModes) {
  cluster.start_origin();
  cluster.start_worker("a", {"--files", "--versions-in", "disk"});
  const Tree tree(cluster.temp().file("tree"));
  tree.write("d/e/tool", "code");
  tree.make_executable("d/e/tool");
  published(cluster, tree, 1);
  const auto verify = [&] { return cluster.run({"verify", cluster.state("a"), "--keys", keys.file_of("a")}); };
  EXPECT_EQ(verify().status, 0) << verify().err;
  const fs::path installed = fs::canonical(cluster.state("a") + "/current") / "d" / "e";
  std::ofstream(installed / "foreign") << "x";
  EXPECT_THAT(verify().err, HasSubstr("'d/e/foreign' is no file of the published version"));
  fs::remove(installed / "foreign");
  fs::permissions(installed / "tool", fs::perms::owner_exec, fs::perm_options::remove);
  EXPECT_THAT(verify().err, HasSubstr("not executable"));
  fs::permissions(installed / "tool", fs::perms::owner_exec, fs::perm_options::add);
  EXPECT_EQ(verify().status, 0);
}

TEST_F(FileTree, OfAProgramIsPublishedThroughTheLibrary) {
  cluster.start_origin();
  cluster.start_worker("a", kTakesFiles);
  tree.write("d/file", "1");
  wc::Client client(cluster.state("origin"));
  const std::uint64_t version = client.publish_path(tree.path(), {.file_tree = true}, std::chrono::minutes(1));
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.version("a") == version; }));
  EXPECT_TRUE(holds(cluster, "a", tree));
}

}  // namespace
}  // namespace weightcast
