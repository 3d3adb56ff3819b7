// Reading a version whole while others take its place: weightcast path and exec.
#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/e2e/fleet/cluster.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

constexpr unsigned kShards = 7;

struct PathTest : testing::Test {
  Cluster cluster;

  void SetUp() override {
    cluster.start_origin();
    cluster.start_worker("w", {"--keep", "1"});
  }
  std::string source(std::uint64_t version) { return cluster.temp().file("v" + std::to_string(version)); }
  void publish(std::uint64_t version) {
    write_sharded_snapshot(source(version), 20'000, kShards, static_cast<unsigned>(100 * version));
    ASSERT_THAT(cluster.publish(source(version), version), Exits(0));
  }
  /// The seven shards, one after another.
  static std::string bytes_of(const std::string& directory) {
    std::string all;
    for (unsigned i = 1; i <= kShards; ++i) {
      all += read_file(directory + "/model-0000" + std::to_string(i) + "-of-00007.safetensors");
    }
    return all;
  }
  Process exec(const std::string& script, const std::vector<std::string>& flags = {"--pin"}) {
    std::vector<std::string> words{WEIGHTCAST_BINARY, "exec", "--state", cluster.state("w")};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", "sh", "-c", script, "script", cluster.temp().path()});
    return Process(words, cluster.temp().file("exec.out"), cluster.temp().file("exec.err"));
  }
  [[nodiscard]] bool appears(const std::string& file) const {
    return Cluster::eventually([&] { return fs::exists(cluster.temp().file(file)); });
  }
};

/// Reads the first shard, waits until it is told to go on, and reads the rest.
constexpr const char* kReadShards = R"(
cd "$1"
cat "$WEIGHTCAST_DIRECTORY"/model-00001-*.safetensors > read
: > started
while [ ! -e go ]; do sleep 0.02; done
for i in 2 3 4 5 6 7; do cat "$WEIGHTCAST_DIRECTORY"/model-0000$i-*.safetensors >> read || exit 3; done
exit 7)";

TEST_F(PathTest, APinnedCommandReadsOneVersionWhateverIsInstalledMeanwhile) {
  ASSERT_NO_FATAL_FAILURE(publish(1));
  Process reader = exec(kReadShards);
  ASSERT_TRUE(appears("started"));
  for (const std::uint64_t version : {2, 3, 4}) ASSERT_NO_FATAL_FAILURE(publish(version));
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("w") == 4; }));
  // A reader that goes through `current` would go on with another version's shards.
  EXPECT_EQ(bytes_of(cluster.state("w") + "/current"), bytes_of(source(4)));
  std::ofstream(cluster.temp().file("go")) << "";
  EXPECT_EQ(reader.wait(std::chrono::minutes(1)), 7) << read_file(cluster.temp().file("exec.err"));
  EXPECT_EQ(read_file(cluster.temp().file("read")), bytes_of(source(1)));
}

TEST_F(PathTest, APinEndsWithTheCommand) {
  ASSERT_NO_FATAL_FAILURE(publish(1));
  const std::string first = cluster.run({"path", "--state", cluster.state("w")}).out;
  Process reader = exec("exit 0");
  EXPECT_EQ(reader.wait(std::chrono::minutes(1)), 0);
  ASSERT_NO_FATAL_FAILURE(publish(2));
  ASSERT_NO_FATAL_FAILURE(publish(3));
  EXPECT_TRUE(Cluster::eventually([&] { return !fs::exists(first.substr(0, first.size() - 1)); }));
}

TEST_F(PathTest, APinThatADaemonsRestartHasEndedIsTold) {
  ASSERT_NO_FATAL_FAILURE(publish(1));
  Process reader = exec(kReadShards);
  ASSERT_TRUE(appears("started"));
  reader.signal(SIGSTOP);  // so that it cannot pin the version again before that is gone
  EXPECT_EQ(cluster.end("w", SIGTERM), 0);
  cluster.restart("w");
  for (const std::uint64_t version : {2, 3}) ASSERT_NO_FATAL_FAILURE(publish(version));
  reader.signal(SIGCONT);
  EXPECT_TRUE(Cluster::eventually([&] {
    return read_file(cluster.temp().file("exec.err")).find("version 1 is pinned no more") != std::string::npos;
  }));
  std::ofstream(cluster.temp().file("go")) << "";
  EXPECT_EQ(reader.wait(std::chrono::minutes(1)), 3) << "the command goes on";
}

TEST_F(PathTest, ExecForwardsSignalsAndTheExitStatus) {
  ASSERT_NO_FATAL_FAILURE(publish(1));
  Process traps = exec("trap 'exit 9' TERM; : > \"$1/started\"; while :; do sleep 0.02; done");
  ASSERT_TRUE(appears("started"));
  traps.signal(SIGTERM);
  EXPECT_EQ(traps.wait(std::chrono::minutes(1)), 9);
  EXPECT_EQ(exec("kill -KILL $$").wait(std::chrono::minutes(1)), 128 + SIGKILL);
  EXPECT_EQ(exec("exit 5", {}).wait(std::chrono::minutes(1)), 5) << "without a pin";
  EXPECT_THAT(cluster.run({"exec", "--pin", "--state", cluster.state("w"), "--", "./no-such-program"}),
              Exits(127, "./no-such-program"));
}

TEST_F(PathTest, PathNamesTheDirectoryOfAVersion) {
  const auto path = [&](const Cluster::Flags& flags = {}) {
    Cluster::Flags words{"path", "--state", cluster.state("w")};
    words.insert(words.end(), flags.begin(), flags.end());
    return cluster.run(words);
  };
  EXPECT_THAT(path().err, HasSubstr("no version is in use yet"));
  ASSERT_NO_FATAL_FAILURE(publish(1));
  const Ran first = path();
  EXPECT_EQ(first.status, 0) << first.err;
  ASSERT_THAT(first.out, EndsWith("\n"));
  const std::string directory = first.out.substr(0, first.out.size() - 1);
  EXPECT_TRUE(fs::path(directory).is_absolute());
  EXPECT_EQ(bytes_of(directory), bytes_of(source(1)));
  EXPECT_EQ(path({"--version", "1"}).out, first.out);
  EXPECT_THAT(path({"--version", "9"}), Exits(1, "version 9: it is not on this host, which has 1"));
}

TEST_F(PathTest, TheEnvironmentNamesTheStateDirectory) {
  ASSERT_NO_FATAL_FAILURE(publish(1));
  ASSERT_EQ(::setenv("WEIGHTCAST_STATE", cluster.state("w").c_str(), 1), 0);
  const Ran path = cluster.run({"path"});
  const Ran elsewhere = cluster.run({"path", "--state", cluster.temp().file("nowhere")});
  ::unsetenv("WEIGHTCAST_STATE");
  EXPECT_EQ(path.out, cluster.run({"path", "--state", cluster.state("w")}).out);
  EXPECT_EQ(elsewhere.status, 1) << "the flag comes first";
  EXPECT_EQ(cluster.run({"path"}).status, 2);
}

}  // namespace
}  // namespace weightcast
