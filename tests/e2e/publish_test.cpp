// What a user does on a good day: publish, look, subscribe.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/units.h"
#include "tests/e2e/fleet/cluster.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::set<std::string> keys_of(const nlohmann::json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

struct ThreeWorkers : testing::Test {
  Cluster cluster;
  void SetUp() override { cluster.start_fleet({"a", "b", "c"}); }
};

TEST_F(ThreeWorkers, FileReachesEveryoneByteForByte) {
  const std::string source = write_snapshot(cluster.temp().file("model.safetensors"), 3'000'001, 1);
  const Ran ran = cluster.publish(source, 7);
  ASSERT_EQ(ran.status, 0) << ran.err;
  const auto result = nlohmann::json::parse(ran.out);
  EXPECT_EQ(result.at("version"), 7);
  EXPECT_EQ(result.at("kind"), "full");
  EXPECT_EQ(result.at("payload_bytes"), std::filesystem::file_size(source));
  EXPECT_EQ(result.at("workers"), 3);
  EXPECT_EQ(result.at("installed"), 3);
  EXPECT_LE(result.at("t50_s"), result.at("t90_s"));
  EXPECT_LE(result.at("t90_s"), result.at("t100_s"));
  for (const char* name : {"origin", "a", "b", "c"}) EXPECT_TRUE(cluster.holds(name, source));
}

TEST_F(ThreeWorkers, ShardedDirectoryReachesEveryoneByteForByte) {
  const std::string source = write_sharded_snapshot(cluster.temp().file("model"), 1'000'003, 3, 5);
  ASSERT_THAT(cluster.publish(source, 1), Exits(0));
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(cluster.holds(name, source));
}

TEST(Takeover, ChunksLeaveBeforeItIsDone) {
  Cluster cluster;
  cluster.start_fleet({"a"});
  wc::Client client(cluster.state("origin"));
  // On a busy host the worker may be too late to ask for a chunk in time, but not every time.
  bool early = false;
  for (unsigned version = 1; version <= 6 && !early; ++version) {
    const std::string source = write_snapshot(cluster.temp().file("model.safetensors"), 192 * kMiB, version);
    const Ran ran = cluster.publish(source, version);
    ASSERT_EQ(ran.status, 0) << ran.err;
    const double first_sent_s = nlohmann::json::parse(client.status()).at("nodes")[0].at("first_sent_s");
    EXPECT_GT(first_sent_s, 0);
    early = first_sent_s < nlohmann::json::parse(ran.out).at("take_s").get<double>();
    EXPECT_TRUE(cluster.holds("a", source));
  }
  EXPECT_TRUE(early);
}

std::ptrdiff_t threads_of(const Process& daemon) {
  const auto tasks = std::filesystem::path("/proc") / std::to_string(daemon.pid()) / "task";
  return std::distance(std::filesystem::directory_iterator(tasks), {});
}

TEST(Takeover, HasTheThreadsThatItWasGiven) {
  std::ptrdiff_t threads[2] = {};
  for (const int many : {0, 1}) {
    Cluster cluster;
    cluster.start_fleet({"a"}, {"--threads", many != 0 ? "7" : "1"});
    const std::string source = cluster.publish_bytes(1, 16 * kMiB);
    EXPECT_TRUE(cluster.holds("a", source));
    threads[many] = threads_of(cluster.process("origin"));
  }
  EXPECT_EQ(threads[1] - threads[0], 5) << "two beside those of the work, and never less than four";
}

TEST_F(ThreeWorkers, StatusTellsOfEveryNode) {
  cluster.publish_bytes(1, 100'000);
  const nlohmann::json status = cluster.status("origin");
  ASSERT_EQ(status.at("nodes").size(), 4u);
  for (const nlohmann::json& node : status.at("nodes")) {
    for (const char* key : {"name", "role", "version", "parent", "children", "score", "state", "bytes_received"}) {
      EXPECT_TRUE(node.contains(key)) << key;
    }
    EXPECT_TRUE(node.at("children").is_array());
    EXPECT_EQ(node.at("role"), node.at("name") == "origin" ? "origin" : "worker");
    EXPECT_EQ(node.at("version"), 1);
  }
  EXPECT_EQ(cluster.self("a").at("state"), "idle");
}

TEST_F(ThreeWorkers, PublishJsonHasTheDocumentedKeysAndNullForWhatWasNotReached) {
  const std::string source = write_snapshot(cluster.temp().file("model.safetensors"), 1000, 1);
  const std::vector<const char*> workers{"a", "b", "c"}, times{"t50_s", "t90_s", "t100_s"};
  // Workers that stand still install nothing.
  for (const char* name : workers) cluster.process(name).signal(SIGSTOP);
  const auto pending = nlohmann::json::parse(cluster.publish(source, 1, {}).out);
  for (const char* name : workers) cluster.process(name).signal(SIGCONT);
  const auto reached = nlohmann::json::parse(cluster.publish(source, 2).out);
  for (const nlohmann::json* result : {&pending, &reached}) {
    for (const char* key : {"version", "kind", "payload_bytes", "workers", "installed", "t50_s", "t90_s", "t100_s"}) {
      EXPECT_TRUE(result->contains(key)) << key;
    }
  }
  EXPECT_EQ(pending.at("installed"), 0);
  EXPECT_EQ(reached.at("installed"), 3);
  for (const char* key : times) {
    EXPECT_TRUE(pending.at(key).is_null()) << pending;
    EXPECT_TRUE(reached.at(key).is_number()) << reached;
  }
}

TEST_F(ThreeWorkers, OldVersionsAreForgottenAndTheCurrentOneIsListed) {
  for (unsigned v = 1; v <= 4; ++v) {
    cluster.publish_bytes(v, 50'000);
  }
  for (const char* name : {"origin", "a"}) {
    nlohmann::json list;
    // Until a newer one is durable, the newest durable one stays, too.
    ASSERT_TRUE(Cluster::eventually([&] {
      const Ran ran = cluster.run({"versions", "--state", cluster.state(name), "--json"});
      list = nlohmann::json::parse(ran.out).at("versions");
      return list.size() == 2;
    })) << list;
    EXPECT_EQ(list[0].at("version"), 3);
    EXPECT_EQ(list[1].at("version"), 4);
    EXPECT_EQ(list[0].at("current"), false);
    EXPECT_EQ(list[1].at("current"), true);
    EXPECT_EQ(keys_of(list[0]), (std::set<std::string>{"current", "digest", "durable", "kind", "path", "payload_bytes",
                                                       "published_unix_ms", "snapshot_bytes", "version"}));
  }
}

TEST_F(ThreeWorkers, TensorsFromMemoryArriveAndAreAnnouncedToSubscribers) {
  wc::Subscription subscription(cluster.state("b"));
  EXPECT_FALSE(subscription.next(50ms).has_value());

  wc::Client trainer(cluster.state("origin"));
  std::vector<float> weights(1000, 0.5f);
  const std::vector<wc::Tensor> tensors{
      {.name = "w", .dtype = "F32", .shape = {1000}, .data = weights.data(), .size_bytes = 4000}};
  for (std::uint64_t v = 1; v <= 3; ++v) {
    EXPECT_EQ(trainer.next_version(), v);
    weights.front() = float(v);
    EXPECT_EQ(trainer.publish(tensors, {}, 120s), v);
    weights.front() = -1;  // the trainer goes on at once
    const wc::Outcome outcome = trainer.wait(v, {.fraction = 1, .on_progress = {}}, 120s);
    EXPECT_TRUE(outcome.reached);
    EXPECT_EQ(outcome.version, v);
    EXPECT_EQ(outcome.installed, 3u);
    EXPECT_TRUE(outcome.t100_s.has_value());
    EXPECT_TRUE(outcome.take_s.has_value());
    const std::optional<wc::Event> told = subscription.next(60s);
    ASSERT_TRUE(told && told->kind == WC_EVENT_INSTALLED);
    EXPECT_EQ(told->version, v);
    const std::string bytes = read_file(told->directory + "/model.safetensors");
    ASSERT_GT(bytes.size(), 4000u);
    float first = 0;
    std::memcpy(&first, bytes.data() + bytes.size() - 4000, sizeof first);
    EXPECT_EQ(first, float(v)) << "what was there when publish() was called";
  }
}

/// How many connections to this Unix socket there are, accepted or not.
std::size_t connections_to(const std::string& socket) {
  std::istringstream lines(read_file("/proc/net/unix"));
  std::size_t found = 0;
  for (std::string line; std::getline(lines, line);) found += line.ends_with(" " + socket);
  return found - 1;  // the listening one
}

TEST_F(ThreeWorkers, PublicationsQueueInOrderAndTooManyAreRefused) {
  // The first is large, and the origin stands still while the others come, so that they come while it is taken over.
  const std::string large = write_snapshot(cluster.temp().file("large.safetensors"), 256 * kMiB, 1);
  const std::string small = write_snapshot(cluster.temp().file("small.safetensors"), 1000, 2);
  std::vector<Process> running;
  const auto start = [&](const std::string& path, unsigned version) {
    const std::string base = cluster.temp().file("publish-" + std::to_string(version));
    running.emplace_back(
        std::vector<std::string>{WEIGHTCAST_BINARY, "publish", path, "--version", std::to_string(version), "--state",
                                 cluster.state("origin"), "--new-model"},
        base + ".out", base + ".err");
  };
  start(large, 1);
  const auto begun = [&](const char* folder) {
    return std::filesystem::exists(cluster.state("origin") + folder + "/incoming/000000000001");
  };
  ASSERT_TRUE(Cluster::eventually([&] { return begun("/memory") || begun(""); }));
  cluster.process("origin").signal(SIGSTOP);
  const std::string socket = cluster.state("origin") + "/api.sock";
  const std::size_t connected = connections_to(socket);
  for (unsigned v = 2; v <= 14; ++v) {
    start(small, v);
    // One after another, so that they are accepted in this order.
    EXPECT_TRUE(Cluster::eventually([&] { return connections_to(socket) == connected + v - 1; }));
  }
  cluster.process("origin").signal(SIGCONT);
  unsigned done = 0, busy = 0;
  for (unsigned v = 1; v <= 14; ++v) {
    const auto status = running[v - 1].wait(120s);
    ASSERT_TRUE(status.has_value());
    const std::string error = read_file(cluster.temp().file("publish-" + std::to_string(v) + ".err"));
    if (*status == 0) {
      ++done;
    } else if (error.find("wait already") != std::string::npos) {
      ++busy;
    } else {
      ADD_FAILURE() << error;
    }
  }
  EXPECT_GE(done, 1u);
  EXPECT_EQ(busy, 5u) << "thirteen came while one was taken over, and eight may wait";
}

TEST(ExitStatus, IsOneWithOneLineOnFailureAndTwoOnUsage) {
  Cluster cluster;
  const auto one_line = [](const Ran& ran) { return std::count(ran.err.begin(), ran.err.end(), '\n') == 1; };
  const Ran nobody = cluster.run({"status", "--state", cluster.temp().file("none")});
  EXPECT_EQ(nobody.status, 1);
  EXPECT_TRUE(one_line(nobody)) << nobody.err;
  EXPECT_THAT(nobody.err, HasSubstr("no daemon runs there"));
  EXPECT_EQ(cluster.run({}).status, 2);
  EXPECT_EQ(cluster.run({"publish"}).status, 2);
  EXPECT_EQ(cluster.run({"daemon", "--role", "king", "--state", "x"}).status, 2);
  EXPECT_EQ(cluster.run({"publish", "x", "--version", "-1", "--state", "x"}).status, 2);
  EXPECT_EQ(cluster.run({"--help"}).status, 0);
  EXPECT_EQ(
      cluster.run({"daemon", "--role", "origin", "--state", cluster.temp().file("s"), "--listen", "0.0.0.0:0"}).status,
      2)
      << "neither --keys nor --insecure";
}

TEST(Wait, ThatIsNotReachedEndsInTimeWithStatusOneAndTheNames) {
  Cluster cluster;
  cluster.start_fleet({"a"});
  cluster.start_worker("slow", {"--downlink", "1mbit"});
  const std::string source = write_snapshot(cluster.temp().file("model.safetensors"), 8'000'000, 1);
  const Ran ran = cluster.publish(source, 1, {"--wait", "1", "--timeout", "6"});
  EXPECT_THAT(ran, Exits(1, "1 of 2 workers installed it within 6 s, 100 % were to; missing: slow;"));
  const auto result = nlohmann::json::parse(ran.out);
  EXPECT_TRUE(result.at("t100_s").is_null());
  EXPECT_EQ(result.at("installed"), 1);
}

TEST(Wait, WithoutAnyWorkerIsNotReached) {
  Cluster cluster;
  cluster.start_origin();
  const std::string source = write_snapshot(cluster.temp().file("model.safetensors"), 1000, 1);
  EXPECT_EQ(cluster.publish(source, 1, {}).status, 0) << "nobody is waited for";
  EXPECT_THAT(cluster.publish(source, 2, {"--wait", "0.5", "--timeout", "0.5"}), Exits(1, "no worker is connected"));
}

TEST(Terminate, EndsADaemonWithoutWaitingForWhatItSends) {
  Cluster cluster;
  cluster.start_fleet({"idle", "busy"}, {"--uplink", "20mbit"});
  cluster.publish_bytes(1, 192 * kMiB, {});
  // To send it takes 80 s; to end takes a moment, and more of them on a busy host.
  for (const char* name : {"busy", "idle", "origin"}) EXPECT_EQ(cluster.end(name, SIGTERM, 20s), 0) << name;
}

}  // namespace
}  // namespace weightcast
