// The learner as a process: beside a real daemon and a worker, killed at random moments, told to stop.
#include <gmock/gmock.h>
#include <signal.h>

#include <cstring>
#include <random>
#include <span>
#include <thread>

#include "base/posix_file_system.h"
#include "patch/snapshot/safetensors.h"
#include "tests/e2e/cluster.h"
#include "trainer/learner/checkpoint.h"
#include "trainer/learner/metrics.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct LearnerE2eTest : testing::Test {
  Cluster cluster;
  PosixFileSystem files;

  std::string out(const std::string& name) const { return cluster.temp().file(name); }
  /// A run of a second, with a model of some 30,000 parameters.
  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& settings) const {
    std::vector<std::string> arguments{WEIGHTCAST_TRAIN, "run"};
    const auto set = [&](const std::string& setting) { arguments.insert(arguments.end(), {"--set", setting}); };
    for (const char* setting :
         {"seed=5", "init_hidden_size=32", "init_intermediate_size=64", "init_num_hidden_layers=2",
          "init_num_attention_heads=2", "init_num_key_value_heads=1", "task_options.digits_max=1", "max_new_tokens=4",
          "rollout_batch_size=16", "group_size=4", "learning_rate=1e-3", "sft_steps=3", "sft_batch_size=8",
          "entropy_coeff=0.01"}) {
      set(setting);
    }
    set("output_dir=" + out(name));
    for (const std::string& setting : settings) set(setting);
    return arguments;
  }
  Ran run(const std::string& name, const std::vector<std::string>& settings) const {
    return run_program(command(name, settings), cluster.temp().path());
  }
  Process start(const std::string& name, const std::vector<std::string>& settings) const {
    return Process(command(name, settings), out(name + ".out"), out(name + ".err"));
  }
  Checkpoint last(const std::string& name) {
    std::vector<std::string> warnings;
    return read_newest_checkpoint(files, out(name) + "/checkpoints", warnings).value().value();
  }
  std::vector<Metrics> metrics(const std::string& name) {
    auto lines = read_metrics(files, out(name) + "/metrics.jsonl");
    return lines.has_value() ? std::move(*lines) : std::vector<Metrics>();
  }
  /// Training steps that are done.
  double steps(const std::string& name) {
    const auto lines = metrics(name);
    if (lines.empty() || lines.back().count("training/global_step") == 0) return 0;
    return lines.back().at("training/global_step");
  }

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
  cluster.start_origin();
  cluster.start_worker("w1");
  // BF16 weights at a small learning rate change in few cells, so that lists of changes are published, too.
  const Ran ran = run("a", {"publish_state=" + cluster.state("origin"), "dtype=bfloat16", "learning_rate=1e-5",
                            "total_training_steps=12"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  // Version 1 is that of the weights before the first step.
  ASSERT_TRUE(Cluster::eventually([&] { return cluster.version("w1") == 13; })) << ran.err;
  EXPECT_TRUE(holds_last("w1", "a"));
  EXPECT_TRUE(holds_last("origin", "a"));
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

TEST_F(LearnerE2eTest, TrainsOnWhileTheDaemonIsGone) {
  cluster.start_origin();
  cluster.start_worker("w1");
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
  const std::vector<std::string> settings{"total_training_steps=100", "checkpoint_interval=1", "generator_lag=1"};
  ASSERT_EQ(run("whole", settings).status, 0);

  constexpr int kKills = 8;
  std::mt19937 random(std::random_device{}());
  for (int kill = 0; kill < kKills; ++kill) {
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
  const Checkpoint one = last("whole"), other = last("killed");
  EXPECT_EQ(one.step, 100u);
  EXPECT_EQ(other.step, 100u);
  for (const auto& [file, tensors] : one.tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(tensors[i].bytes, other.tensors.at(file)[i].bytes) << file << " " << tensors[i].info.name;
    }
  }
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
  const Ran ran = run_program(limited, cluster.temp().path());
  EXPECT_EQ(ran.status, 1) << "the last checkpoint is missing";
  EXPECT_THAT(ran.err, HasSubstr("checkpoint not written, and the one before stays"));
  EXPECT_EQ(steps("a"), 8);
  EXPECT_EQ(last("a").step, 3u);

  ASSERT_EQ(run("a", {"total_training_steps=8"}).status, 0);
  EXPECT_EQ(last("a").step, 8u);
  ASSERT_EQ(run("b", {"total_training_steps=8"}).status, 0);
  const Checkpoint one = last("a"), other = last("b");
  const auto& mine = one.tensors.at("model.safetensors");
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_EQ(mine[i].bytes, other.tensors.at("model.safetensors")[i].bytes);
  }
}

TEST_F(LearnerE2eTest, EndsWithAnErrorWhereMemoryIsShort) {
  ASSERT_EQ(run("a", {"total_training_steps=3"}).status, 0);
  // Room for LibTorch, but not for the keys and values of sixteen rows: 4 GB.
  std::vector<std::string> limited{"/bin/sh", "-c", "ulimit -v 3000000 && exec \"$@\"", "sh"};
  const auto more = command("a", {"total_training_steps=8", "max_new_tokens=1000000"});
  limited.insert(limited.end(), more.begin(), more.end());
  const Ran ran = run_program(limited, cluster.temp().path());
  EXPECT_EQ(ran.status, 1) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("training step 4: LibTorch says: "));
  EXPECT_THAT(ran.err, HasSubstr("lower generator_batch_size"));
  EXPECT_EQ(last("a").step, 3u);
}

TEST_F(LearnerE2eTest, SaysThatTheOriginHasItsVersions) {
  cluster.start_origin();
  ASSERT_EQ(cluster.publish(write_snapshot(out("other.safetensors"), 4096, 1), 50, {}).status, 0);
  cluster.end("origin", SIGKILL);
  const std::vector<std::string> settings{"publish_state=" + cluster.state("origin"), "total_training_steps=3"};
  // While the origin is away nobody can say that its versions end at 50.
  ASSERT_EQ(run("a", settings).status, 0);
  cluster.restart("origin");
  const Ran ran = run("a", {settings[0], "total_training_steps=5"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("version 4 is not published: the origin has it already"));
  // A run that begins while the origin is there counts on from it.
  ASSERT_EQ(run("b", settings).status, 0);
  EXPECT_EQ(metrics("b").back().at("training/version"), 54);
}

TEST_F(LearnerE2eTest, RefusesAConfigurationOnOneLine) {
  const Ran ran = run("a", {"max_stalenes=3"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.err, HasSubstr("the nearest is 'max_staleness'"));
}

}  // namespace
}  // namespace weightcast
