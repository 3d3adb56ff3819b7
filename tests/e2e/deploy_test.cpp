// What deploy/ has for operators works as it stands: units, configurations, and the keys that docs/FLEET.md tells them to
// make.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tests/e2e/fleet/cluster.h"
#include "tests/e2e/fleet/deploy_files.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

struct DeployTest : testing::Test {
  TempDir temp;
  TempDir memory{TempDir::in_memory()};
  Ran weightcast(std::vector<std::string> words) {
    words.insert(words.begin(), WEIGHTCAST_BINARY);
    return run_program(words, temp.path());
  }
  /// The daemon of a unit, with its configuration's places below `temp`.
  Process start(const std::string& role, const std::string& keys, const std::string& origin) {
    const std::string unit = read_file(deploy_file("weightcast-" + role + ".service"));
    std::vector<std::string> words = arguments_of(unit);
    const fs::path named = words.back();
    EXPECT_EQ(named, "/etc/weightcast/" + role + ".toml");
    std::string config = read_file(deploy_file(named.filename()));
    EXPECT_FALSE(config.empty()) << named;
    for (const auto& [from, to] : std::map<std::string, std::string>{{"/var/lib/weightcast", temp.file(role)},
                                                                     {"/etc/weightcast/keys.pem", keys},
                                                                     {"0.0.0.0:7400", "127.0.0.1:0"},
                                                                     {"trainer.example.net:7400", origin}}) {
      config = replaced(config, from, to);
    }
    words.front() = WEIGHTCAST_BINARY;
    words.insert(words.end() - 2, {"--memory-dir", memory.path()});
    words.back() = temp.file(role + ".toml");
    std::ofstream(words.back()) << config;
    return Process(words, temp.file(role + ".log"), temp.file(role + ".log"));
  }
  std::string address_of(const std::string& role) {
    const Ran status = weightcast({"status", "--json", "--state", temp.file(role)});
    EXPECT_EQ(status.status, 0) << status.err;
    return nlohmann::json::parse(status.out).at("nodes").at(0).at("address");
  }
};

TEST_F(DeployTest, TheDaemonsStartWithTheKeysThatReadmeMakes) {
  const std::string keys = temp.file("weightcast-keys");
  ASSERT_EQ(weightcast({"keys", "init", "--dir", keys}).status, 0);
  ASSERT_EQ(weightcast({"keys", "issue", "worker-1", "--dir", keys}).status, 0);
  Process origin = start("origin", keys + "/origin.pem", "");
  ASSERT_THAT(weightcast({"ready", "--state", temp.file("origin")}), Exits(0)) << read_file(temp.file("origin.log"));
  Process worker = start("worker", keys + "/workers/worker-1.pem", address_of("origin"));
  ASSERT_THAT(weightcast({"ready", "--state", temp.file("worker")}), Exits(0)) << read_file(temp.file("worker.log"));
  // They agree on what they carry, too.
  const std::string snapshot = write_snapshot(temp.file("snapshot"), 10'000, 1);
  EXPECT_THAT(weightcast({"publish", snapshot, "--version", "1", "--wait", "1", "--state", temp.file("origin")}),
              Exits(0))
      << read_file(temp.file("worker.log"));
}

TEST_F(DeployTest, EachConfigurationHasAUnitThatReadsIt) {
  std::set<std::string> read, there;
  for (const auto& entry : fs::directory_iterator(WEIGHTCAST_DEPLOY)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".toml")) there.insert(name);
    if (!name.ends_with(".service")) continue;
    const std::vector<std::string> words = arguments_of(read_file(entry.path()));
    ASSERT_GE(words.size(), 4u) << name;
    EXPECT_EQ(words[words.size() - 2], "--config") << name;
    read.insert(fs::path(words.back()).filename());
  }
  EXPECT_EQ(read, there);
  EXPECT_EQ(there.size(), 4u);
}

// systemd starts a daemon again that failed, but not one that will fail again for certain.
TEST_F(DeployTest, AMistakeInAConfigurationEndsADaemonForGood) {
  const std::string keys = temp.file("weightcast-keys");
  ASSERT_EQ(weightcast({"keys", "init", "--dir", keys}).status, 0);
  const std::string unit = read_file(deploy_file("weightcast-origin.service"));
  for (const std::vector<std::string>& mistake : {std::vector<std::string>{"--name", "trainer"},
                                                  {"--role", "worker"},
                                                  {"--uplnk", "300mbit"},
                                                  {"--single-copy"}}) {
    std::vector<std::string> words{
        "daemon", "--role", "origin", "--state", temp.file("state"), "--keys", keys + "/origin.pem"};
    if (mistake[0] == "--role") words[2] = mistake[1];
    if (mistake[0] != "--role") words.insert(words.end(), mistake.begin(), mistake.end());
    const Ran ran = weightcast(words);
    EXPECT_EQ(std::to_string(ran.status), setting(unit, "RestartPreventExitStatus")) << mistake[0] << ran.err;
  }
}

}  // namespace
}  // namespace weightcast
