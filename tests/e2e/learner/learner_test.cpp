// The learner as a process: beside a real daemon and a worker, killed at random moments, told to stop.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <thread>

#include "base/digest/content_digest.h"
#include "base/files/unique_fd.h"
#include "patch/snapshot/safetensors.h"
#include "patch/snapshot/snapshot.h"
#include "tests/e2e/learner/learner_runs.h"
#include "trainer/model/tokenizer/tokenizer.h"
#include "trainer/tasks/trajectory/trajectory_json.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct LearnerE2eTest : testing::Test, LearnerRuns {
  /// Whether a run that is killed `kills` times and goes on comes to the bits of one that is not.
  void expect_same_after_kills(const std::vector<std::string>& settings, int kills);
  /// Whether what a node has installed are the weights of the run's last checkpoint, to the bit.
  testing::AssertionResult holds_last(const std::string& node, const std::string& name) {
    const Checkpoint checkpoint = last(name);
    const std::string file = read_file(cluster.state(node) + "/current/model.safetensors");
    const auto header = parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), node);
    if (!header.has_value()) return testing::AssertionFailure() << header.error().message();
    const auto& weights = checkpoint.tensors.at("model.safetensors");
    if (header->tensors.size() != weights.size()) return testing::AssertionFailure() << "another number of tensors";
    for (const TensorInfo& tensor : header->tensors) {
      const auto mine = std::find_if(weights.begin(), weights.end(),
                                     [&](const StoredTensor& stored) { return stored.info.name == tensor.name; });
      if (mine == weights.end() || mine->info.dtype != tensor.dtype || mine->info.shape != tensor.shape ||
          std::memcmp(mine->bytes.data(), file.data() + tensor.offset_bytes, tensor.size_bytes) != 0) {
        return testing::AssertionFailure() << tensor.name << " of " << node << " differs";
      }
    }
    return testing::AssertionSuccess();
  }
};

TEST_F(LearnerE2eTest, AWorkerInstallsTheLearnersBits) {
  cluster.start_fleet({"w1"});
  // BF16 weights at a small learning rate change in few cells, so that lists of changes are published, too.
  const Ran ran = run("a", {"publish_state=" + cluster.state("origin"), "dtype=bfloat16", "learning_rate=1e-5",
                            "total_training_steps=12"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  // Version 1 is that of the weights before the first step.
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("w1") == 13; })) << ran.err;
  EXPECT_TRUE(holds_last("w1", "a"));
  EXPECT_TRUE(holds_last("origin", "a"));
  // With what from_pretrained() needs.
  for (const char* const name : {"config.json", "tokenizer.json"}) {
    EXPECT_EQ(read_file(cluster.state("w1") + "/current/" + name), last("a").texts.at(name)) << name;
  }
  double least = 1;
  for (const Metrics& line : metrics("a")) {
    if (line.count("publish/changed_share") != 0) least = std::min(least, line.at("publish/changed_share"));
  }
  EXPECT_GT(least, 0);
  EXPECT_LT(least, 0.25);

  // A run that goes on numbers its versions on, too.
  ASSERT_EQ(run("a", {"publish_state=" + cluster.state("origin"), "dtype=bfloat16", "learning_rate=1e-5",
                      "total_training_steps=14"})
                .status,
            0);
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("w1") == 15; }));
  EXPECT_TRUE(holds_last("w1", "a"));
}

TEST_F(LearnerE2eTest, AnAdaptersPublicationsAreDirectoriesOfPeft) {
  cluster.start_fleet({"w1"});
  const Ran ran = run("a", {"publish_state=" + cluster.state("origin"), "lora_rank=4", "lora_alpha=12",
                            "lora_publish=adapter", "lora_target_modules=q_proj,down_proj", "total_training_steps=3"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("w1") == 4; })) << ran.err;
  const std::string current = cluster.state("w1") + "/current/";
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(current)) names.insert(file.path().filename());
  EXPECT_THAT(names, testing::ElementsAre("adapter_config.json", "adapter_model.safetensors"));
  // No tensor holds alpha.
  const std::string config = read_file(current + "adapter_config.json");
  const Checkpoint checkpoint = last("a");
  EXPECT_EQ(config, checkpoint.texts.at("adapter_config.json"));
  EXPECT_THAT(config, HasSubstr("\"lora_alpha\": 12"));
  const SnapshotSource source = SnapshotSource::open(files, current).value();
  const auto& weights = checkpoint.tensors.at("adapter_model.safetensors");
  ASSERT_EQ(source.tensors().size(), weights.size());
  for (const TensorInfo& tensor : source.tensors()) {
    std::vector<std::byte> bytes(tensor.size_bytes);
    ASSERT_TRUE(source.read_at(tensor.offset_bytes, bytes).has_value());
    const auto mine = std::ranges::find(weights, tensor.name, [](const StoredTensor& one) { return one.info.name; });
    ASSERT_NE(mine, weights.end()) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(mine->bytes, bytes)) << tensor.name;
  }
}

TEST_F(LearnerE2eTest, TrainsOnWhileTheDaemonIsGone) {
  cluster.start_fleet({"w1"});
  Process learner = start(
      "a", {"publish_state=" + cluster.state("origin"), "total_training_steps=1000000", "rollout_batch_size=128"});
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("w1") >= 3; }))
      << "after " << steps("a") << " steps: " << read_file(out("a.err")) << cluster.log("origin") << cluster.log("w1");
  cluster.end("origin", SIGKILL);
  const double then = steps("a");
  ASSERT_TRUE(Cluster::eventually([&] { return steps("a") > then + 20; })) << "training stopped with the daemon";
  ASSERT_TRUE(learner.running());
  cluster.restart("origin");
  ASSERT_TRUE(Cluster::eventually([&] { return double(cluster.version("w1")) > then + 20; }));
  learner.signal(SIGTERM);
  ASSERT_EQ(learner.wait(60s), 0);
  const std::string said = read_file(out("a.err"));
  EXPECT_THAT(said, HasSubstr("training goes on, and newer weights follow"));
  EXPECT_THAT(said, HasSubstr("published again"));
  const std::uint64_t version = last("a").step + 1;
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("w1") == version; }));
  EXPECT_TRUE(holds_last("w1", "a"));
}

TEST_F(LearnerE2eTest, ComesToTheSameBitsAfterKills) {
  expect_same_after_kills({"total_training_steps=100", "checkpoint_interval=1", "generator_lag=1"}, 8);
}

TEST_F(LearnerE2eTest, ComesToTheSameBitsAfterKillsWithAnAdapter) {
  expect_same_after_kills({"total_training_steps=60", "checkpoint_interval=1", "generator_lag=1", "lora_rank=4",
                           "lora_dropout=0.1", "kl_loss_coef=0.01"},
                          4);
}

TEST_F(LearnerE2eTest, ComesToTheSameBitsAfterKillsWithAValueHead) {
  expect_same_after_kills({"total_training_steps=60", "checkpoint_interval=1", "advantage_estimator=gae",
                           "gae_lambda=0.95", "value_learning_rate=1e-2", "kl_reward_coef=0.05"},
                          4);
}

void LearnerE2eTest::expect_same_after_kills(const std::vector<std::string>& settings, int kills) {
  ASSERT_EQ(run("whole", settings).status, 0);
  std::mt19937 random(std::random_device{}());
  for (int kill = 0; kill < kills; ++kill) {
    Process learner = start("killed", settings);
    // Anywhere: while it starts and reads the checkpoint, or some steps and a part of one later.
    if (kill % 2 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 600));
    } else {
      const double target = steps("killed") + double(random() % 4);
      ASSERT_TRUE(Cluster::eventually([&] { return steps("killed") >= target || !learner.running(); }));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    }
    learner.signal(SIGKILL);
    ASSERT_EQ(learner.wait(30s), 128 + SIGKILL) << "it ended by itself: " << read_file(out("killed.err"));
  }
  ASSERT_EQ(run("killed", settings).status, 0);
  expect_same_bits(last("whole"), last("killed"));
  const auto mine = metrics("whole"), theirs = metrics("killed");
  ASSERT_EQ(mine.size(), theirs.size()) << "a step has two lines, or none";
  for (std::size_t i = 3; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i].at("critic/score/mean"), theirs[i].at("critic/score/mean"));
    EXPECT_EQ(mine[i].at("actor/grad_norm"), theirs[i].at("actor/grad_norm"));
  }
}

TEST_F(LearnerE2eTest, WritesACheckpointWhenToldToStop) {
  Process learner = start("a", {"total_training_steps=1000000"});
  ASSERT_TRUE(Cluster::eventually([&] { return steps("a") >= 5; }));
  learner.signal(SIGTERM);
  ASSERT_EQ(learner.wait(60s), 0);
  EXPECT_EQ(double(last("a").step), steps("a"));
}

TEST_F(LearnerE2eTest, TrainsOnWhereNoCheckpointCanBeWritten) {
  ASSERT_EQ(run("a", {"total_training_steps=3"}).status, 0);
  // A limit that metrics and configuration fit into, and weights do not. Blocks have 512 bytes or 1 KiB.
  std::vector<std::string> limited{"/bin/sh", "-c", "ulimit -f 60 && trap '' XFSZ && exec \"$@\"", "sh"};
  const auto more = command("a", {"total_training_steps=8", "checkpoint_interval=2"});
  limited.insert(limited.end(), more.begin(), more.end());
  EXPECT_THAT(run_program(limited, cluster.temp().path()), Exits(1, "checkpoint not written, and the one before stays"))
      << "the last checkpoint is missing";
  EXPECT_EQ(steps("a"), 8);
  EXPECT_EQ(last("a").step, 3u);

  ASSERT_EQ(run("a", {"total_training_steps=8"}).status, 0);
  EXPECT_EQ(last("a").step, 8u);
  ASSERT_EQ(run("b", {"total_training_steps=8"}).status, 0);
  expect_same_bits(last("a"), last("b"));
}

TEST_F(LearnerE2eTest, EndsWithAnErrorWhereMemoryIsShort) {
  ASSERT_EQ(run("a", {"total_training_steps=3"}).status, 0);
  // Room for LibTorch, but not for the keys and values of so many rows: 4 GiB are reserved.
  std::vector<std::string> limited{"/bin/sh", "-c", "ulimit -v 3000000 && exec \"$@\"", "sh"};
  const auto more = command("a", {"total_training_steps=8", "max_new_tokens=1000000", "rollout_batch_size=65536",
                                  "generator_batch_size=65536"});
  limited.insert(limited.end(), more.begin(), more.end());
  EXPECT_THAT(run_program(limited, cluster.temp().path()),
              Exits(1, "the KV cache: the system has no ", "lower generator_batch_size"));
  EXPECT_EQ(last("a").step, 3u);
}

TEST_F(LearnerE2eTest, NumbersItsVersionsAfterTheOriginsLast) {
  cluster.start_origin();
  ASSERT_EQ(cluster.publish(write_snapshot(out("other.safetensors"), 4096, 1), 50, {}).status, 0);
  cluster.end("origin", SIGKILL);
  const std::string origin = "publish_state=" + cluster.state("origin");
  const std::vector<std::string> settings{origin, "publish_new_model=true", "total_training_steps=3"};
  // While the origin is away nobody can say that its versions end at 50.
  ASSERT_EQ(run("a", settings).status, 0);
  cluster.restart("origin");
  ASSERT_THAT(run("a", {origin, "publish_new_model=true", "total_training_steps=5"}),
              Exits(0, "version 4 gets the number 51, and so on"));
  EXPECT_EQ(metrics("a").back().at("training/version"), 53);
  EXPECT_EQ(cluster.version("origin"), 53u);
  EXPECT_TRUE(holds_last("origin", "a"));
  // A run that begins while the origin is there counts on from it.
  ASSERT_EQ(run("b", settings).status, 0);
  EXPECT_EQ(metrics("b").back().at("training/version"), 57);
}

TEST_F(LearnerE2eTest, PublishesWhatItGoesOnFromAfterAKill) {
  cluster.start_origin();
  const std::string origin = "publish_state=" + cluster.state("origin");
  Process learner = start("a", {origin, "total_training_steps=1000000"});
  ASSERT_TRUE(Cluster::eventually([&] { return steps("a") >= 12; }));
  learner.signal(SIGKILL);
  ASSERT_EQ(learner.wait(30s), 128 + SIGKILL);
  const std::uint64_t before = cluster.version("origin");
  ASSERT_GE(before, 10u);
  // From the checkpoint before the first step: its versions have been used up.
  ASSERT_EQ(run("a", {origin, "total_training_steps=3"}).status, 0);
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("origin") > before; })) << read_file(out("a.err"));
  EXPECT_TRUE(holds_last("origin", "a"));
}

TEST_F(LearnerE2eTest, TakesRolloutsOfAVersionOnceTheOriginHasIt) {
  ASSERT_EQ(run("model", {"total_training_steps=0"}).status, 0);
  const Checkpoint model = last("model");
  Trajectory t;
  t.task = "arithmetic";
  t.worker = "w";
  t.model_digest = content_digest_of(std::as_bytes(std::span(model.texts.at("config.json")))).hex();
  t.tokenizer_digest = Tokenizer::parse(model.texts.at("tokenizer.json"))->digest();
  t.tokens = {'1', '+', '1', '=', '2', 256};
  t.response_mask = {0, 0, 0, 0, 1, 1};
  t.logprobs = {-1, -1};
  std::string lines;
  for (; t.sequence < 32; ++t.sequence) {
    t.group = std::to_string(t.sequence / 4);
    t.reward = static_cast<double>(t.sequence % 2);
    t.oldest_version = Version{1 + t.sequence / 16};
    t.version_runs = {{t.oldest_version, 2}};
    lines += write_trajectory(t) + "\n";
  }
  cluster.start_origin();
  // Version 2 is not due, and without it the second batch cannot come.
  const std::vector<std::string> settings{"publish_state=" + cluster.state("origin"),
                                          "rollout_source=files",
                                          "rollout_files=" + cluster.temp().write("r.jsonl", lines),
                                          "publish_interval=3",
                                          "max_staleness=0",
                                          "total_training_steps=2"};
  ASSERT_EQ(run("a", settings).status, 0);
  EXPECT_EQ(steps("a"), 2);
  EXPECT_EQ(metrics("a").back().at("rollouts/admitted"), 32);

  cluster.end("origin", SIGKILL);
  ASSERT_THAT(run("b", settings), Exits(0, "admissible before the origin has version 1", "version_never_published"));
  EXPECT_EQ(steps("b"), 0);
}

/// A learner of several processes.
struct RanksE2eTest : LearnerE2eTest {
  UniqueFd reserved;
  std::uint16_t port = reserve_port();

  /// A port that nobody else gets while `reserved` is open. Rank 0 may listen there all the same, as it reuses
  /// addresses.
  std::uint16_t reserve_port() {
    reserved.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int fd = reserved.get(), yes = 1;
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
    return ntohs(address.sin_port);
  }
  std::vector<std::string> as_rank(std::vector<std::string> settings, int rank, int ranks) const {
    settings.push_back("world_size=" + std::to_string(ranks));
    settings.push_back("rank=" + std::to_string(rank));
    settings.push_back("rendezvous=127.0.0.1:" + std::to_string(port));
    return settings;
  }
  /// All of them; rank 0 runs in `name`.
  std::vector<std::unique_ptr<Process>> start_ranks(const std::string& name, const std::vector<std::string>& settings,
                                                    int ranks) {
    port = reserve_port();
    std::vector<std::unique_ptr<Process>> processes;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string of_rank = rank == 0 ? name : name + "-rank" + std::to_string(rank);
      processes.push_back(std::make_unique<Process>(command(of_rank, as_rank(settings, rank, ranks)),
                                                    out(of_rank + ".out"), out(of_rank + ".err")));
    }
    return processes;
  }
  void run_ranks(const std::string& name, const std::vector<std::string>& settings, int ranks) {
    auto processes = start_ranks(name, settings, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string of_rank = rank == 0 ? name : name + "-rank" + std::to_string(rank);
      EXPECT_EQ(processes[static_cast<std::size_t>(rank)]->wait(120s), 0) << read_file(out(of_rank + ".err"));
    }
  }
};

/// Each rollout is a micro-batch, and each rank has one of an update: so sums have one order.
TEST_F(RanksE2eTest, ComeToTheBitsOfOneProcess) {
  for (const int ranks : {2, 4}) {
    const std::string n = std::to_string(ranks);
    for (const std::vector<std::string>& kind : std::vector<std::vector<std::string>>{
             {"kl_loss_coef=0.01"},
             {"dtype=bfloat16", "stochastic_rounding=true", "advantage_estimator=gae", "value_learning_rate=1e-2"}}) {
      std::vector<std::string> settings{
          "total_training_steps=4", "rollout_batch_size=8", "updates_per_step=" + std::to_string(8 / ranks),
          "sft_batch_size=" + n,    "micro_batch_tokens=1", "max_grad_norm=0.1"};
      settings.insert(settings.end(), kind.begin(), kind.end());
      const std::string name = n + kind[0].substr(0, 2);
      ASSERT_EQ(run("one" + name, settings).status, 0);
      run_ranks("ranks" + name, settings, ranks);
      expect_same_bits(last("one" + name), last("ranks" + name));
    }
  }
}

TEST_F(RanksE2eTest, ComeCloseWhereSumsHaveAnotherOrder) {
  const std::vector<std::string> settings{"total_training_steps=3", "learning_rate=1e-5"};
  ASSERT_EQ(run("one", settings).status, 0);
  for (const int ranks : {2, 4}) {
    const std::string name = "ranks" + std::to_string(ranks);
    run_ranks(name, settings, ranks);
    const auto mine = metrics("one"), theirs = metrics(name);
    ASSERT_EQ(mine.size(), theirs.size());
    for (std::size_t i = 0; i < 3; ++i) {  // of the warm-up
      for (const char* key : {"sft/loss", "sft/grad_norm"}) {
        EXPECT_NEAR(theirs[i].at(key), mine[i].at(key), 1e-6 * std::abs(mine[i].at(key)) + 1e-6) << key << " " << i;
      }
    }
  }
}

TEST_F(RanksE2eTest, GoOnFromACheckpointWithAnotherNumberOfRanks) {
  const std::vector<std::string> settings{"rollout_batch_size=8", "updates_per_step=4", "sft_batch_size=2",
                                          "micro_batch_tokens=1", "kl_loss_coef=0.01"};
  const auto until = [&](const char* steps) {
    std::vector<std::string> more = settings;
    more.push_back(std::string("total_training_steps=") + steps);
    return more;
  };
  ASSERT_EQ(run("whole", until("6")).status, 0);
  run_ranks("parts", until("2"), 2);
  ASSERT_EQ(run("parts", until("4")).status, 0);
  run_ranks("parts", until("6"), 2);
  expect_same_bits(last("whole"), last("parts"));
}

TEST_F(RanksE2eTest, EndWhenOneOfThemDies) {
  for (const int victim : {2, 0}) {
    const std::string name = "victim" + std::to_string(victim);
    auto processes = start_ranks(name, {"total_training_steps=1000000"}, 3);
    ASSERT_TRUE(Cluster::eventually([&] { return steps(name) >= 3; })) << read_file(out(name + ".err"));
    processes[static_cast<std::size_t>(victim)]->signal(SIGKILL);
    for (int rank = 0; rank < 3; ++rank) {
      const std::optional<int> status = processes[static_cast<std::size_t>(rank)]->wait(30s);
      if (rank == victim) continue;
      ASSERT_TRUE(status) << "rank " << rank << " goes on without rank " << victim;
      EXPECT_EQ(*status, 1);
      const std::string of_rank = rank == 0 ? name : name + "-rank" + std::to_string(rank);
      EXPECT_THAT(read_file(out(of_rank + ".err")), HasSubstr("rank " + std::to_string(victim)));
    }
  }
}

TEST_F(RanksE2eTest, SayInWhichKeyTheyDiffer) {
  port = reserve_port();
  Process first(command("a", as_rank({"total_training_steps=3"}, 0, 2)), out("a.out"), out("a.err"));
  EXPECT_THAT(run_program(command("b", as_rank({"total_training_steps=3", "seed=6"}, 1, 2)), cluster.temp().path()),
              Exits(2, "rank 1 has 'seed = 6', and rank 0 'seed = 5'"));
  EXPECT_EQ(first.wait(30s), 1);
  EXPECT_THAT(read_file(out("a.err")), HasSubstr("rank 1 has ended"));
}

TEST_F(LearnerE2eTest, RefusesAConfigurationOnOneLine) {
  std::ofstream(out("a.toml")) << "seed = 3\nmax_stalenes = 3\n";
  const Ran ran = run_program({WEIGHTCAST_TRAIN, "run", "--config", out("a.toml")}, cluster.temp().path());
  EXPECT_THAT(ran, Exits(2, out("a.toml") + " line 2: 'max_stalenes' is no key", "the nearest is 'max_staleness'"));
  EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1);
}

}  // namespace
}  // namespace weightcast
