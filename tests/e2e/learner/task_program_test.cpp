// A task that is a program, examples/task_letters.py, at a learner and at its workers.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <fstream>

#include "tests/e2e/learner/learner_runs.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

struct TaskProgramE2eTest : testing::Test, LearnerRuns {
  /// The section task_program, with the keys that come before it.
  std::string write_config(const std::string& name, const std::string& before, const std::string& script) {
    return cluster.temp().write(name, before + "\n[task_program]\ncommand = \"python3\"\narguments = [\"" + script +
                                          "\"]\nenvironment = [\"PYTHONPATH=" WEIGHTCAST_SOURCE
                                          "/python\"]\n"
                                          "call_time_max = 60\n");
  }
  /// As LearnerRuns::command(), with this task instead of sums.
  std::vector<std::string> letters(const std::string& name, const std::vector<std::string>& settings,
                                   const std::string& script = kExample) {
    std::vector<std::string> arguments = command(name, settings);
    const auto sums = std::ranges::find(arguments, "--task-options=digits_max=1");
    arguments.erase(sums);
    const std::string config = write_config(name + ".toml", "task = \"program\"\nreward_time_max = 200\n", script);
    arguments.insert(arguments.begin() + 2, {"--config", config});
    return arguments;
  }
  double mean_score(std::span<const Metrics> lines) {
    double sum = 0;
    for (const Metrics& line : lines) sum += line.at("critic/score/mean");
    return sum / static_cast<double>(lines.size());
  }

  static constexpr const char* kExample = WEIGHTCAST_SOURCE "/examples/task_letters.py";
};

TEST_F(TaskProgramE2eTest, ALearnerLearnsIt) {
  // Forty updates on right answers, so that a reward is seen at all; and rewards alone from there on.
  ASSERT_THAT(
      run_program(letters("a", {"total_training_steps=25", "rollout_batch_size=64", "sft_steps=40",
                                "sft_learning_rate=5e-3", "learning_rate=3e-3", "entropy_coeff=0", "max_new_tokens=3"}),
                  cluster.temp().path()),
      Exits(0, "the task's program letters@1 has started, in no sandbox"));
  std::vector<Metrics> lines;
  for (Metrics& line : metrics("a")) {
    if (line.count("critic/score/mean") != 0) lines.push_back(std::move(line));
  }
  ASSERT_EQ(lines.size(), 25u);
  const double first = mean_score(std::span(lines).first(5)), last = mean_score(std::span(lines).last(5));
  EXPECT_GT(last, 0.8);
  EXPECT_GT(last, first + 0.2);
  EXPECT_GT(lines.back().at("critic/success_rate"), 0.7);
  EXPECT_EQ(lines.back().at("rollouts/malformed"), 0);
}

TEST_F(TaskProgramE2eTest, ARunOutlivesCrashesOfItsProgram) {
  // Every 50th score ends the process.
  const std::string script = cluster.temp().write("crashing.py", R"(
import os
from weightcast.tasks import Task, serve

class Crashing(Task):
    name = "crashing"
    scores = 0

    def prompt(self, index):
        return f"{index % 8}:"

    def score(self, metadata, response):
        self.scores += 1
        if self.scores == 50:
            os._exit(3)
        return len(response) / 100, False

serve(Crashing())
)");
  ASSERT_THAT(run_program(letters("a", {"total_training_steps=10", "sft_steps=0"}, script), cluster.temp().path()),
              Exits(0, "the task's program crashing@1: it ended (exit status 3)"));
  EXPECT_EQ(steps("a"), 10);
  EXPECT_GE(metrics("a").back().at("rollouts/malformed"), 3);
}

TEST_F(TaskProgramE2eTest, AWorkersProgramScoresForItsLearner) {
  cluster.start_fleet({"w1"});
  const auto words = letters("a", {"total_training_steps=6", "publish_state=" + cluster.state("origin"),
                                   "rollout_source=http", "rollout_listen=127.0.0.1:0"});
  Process learner(words, out("a.out"), out("a.err"));
  const std::string address = learner_address("a");
  const auto start_worker = [&](const std::string& name, const std::string& script) {
    const std::string before = "name = \"" + name + "\"\nlearner = \"" + address + "\"\nstate_dir = \"" +
                               cluster.state("w1") + "\"\nhttp_dir = \"" + out(name + "-http") +
                               "\"\nrunning_max = 16\nreward_time_max = 200\n";
    return Process({WEIGHTCAST_WORKER, "run", "--config", write_config(name + ".toml", before, script)},
                   out(name + ".out"), out(name + ".err"));
  };
  // One whose program has other rules takes no part, and says why.
  std::string other = read_file(kExample);
  other.replace(other.find("    metadata ="), 0, "    version = \"2\"\n");
  Process wrong = start_worker("wrong", cluster.temp().write("other.py", other));
  ASSERT_TRUE(Cluster::eventually([&] {
    return read_file(out("wrong.err"))
               .find("the run's task is program:letters@1, and the program of this host program:letters@2") !=
           std::string::npos;
  })) << read_file(out("wrong.err"));
  Process right = start_worker("right", kExample);
  EXPECT_EQ(learner.wait(120s), 0) << read_file(out("a.err")) << read_file(out("right.err"));
  EXPECT_EQ(right.wait(60s), 0) << read_file(out("right.err"));
  EXPECT_EQ(steps("a"), 6);
  EXPECT_EQ(metrics("a").back().at("rollouts/malformed"), 0);
  if (wrong.running()) wrong.signal(SIGTERM);
}

}  // namespace
}  // namespace weightcast
