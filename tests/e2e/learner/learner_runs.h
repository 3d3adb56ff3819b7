#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/files/posix_file_system.h"
#include "tests/e2e/fleet/cluster.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/metrics/metrics.h"

namespace weightcast {

/// The flag of "name=value", a setting of the learner or of a worker.
inline std::string flag_of(std::string setting) {
  std::replace(setting.begin(), std::ranges::find(setting, '='), '_', '-');
  return "--" + setting;
}

/// Runs of the learner as a process, beside real daemons. Each has a name, below one temporary directory.
struct LearnerRuns {
  Cluster cluster;
  PosixFileSystem files;

  std::string out(const std::string& name) const { return cluster.temp().file(name); }
  /// A run of a second, with a model of some 30,000 parameters.
  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& settings) const {
    std::vector<std::string> arguments{WEIGHTCAST_TRAIN, "run"};
    const auto set = [&](const std::string& setting) { arguments.push_back(flag_of(setting)); };
    for (const char* setting :
         {"seed=5", "init_hidden_size=32", "init_intermediate_size=64", "init_num_hidden_layers=2",
          "init_num_attention_heads=2", "init_num_key_value_heads=1", "task_options=digits_max=1", "max_new_tokens=4",
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
  /// Where a run takes rollouts.
  std::string learner_address(const std::string& name) const {
    std::string address;
    EXPECT_TRUE(Cluster::eventually([&] {
      address = read_file(out(name) + "/rollout_address");
      return !address.empty();
    })) << read_file(out(name + ".err"));
    return address.substr(0, address.find('\n'));
  }
  /// No rollout was trained on that was staler.
  void expect_staleness_within(double max, const std::string& name) {
    for (const Metrics& line : metrics(name)) {
      const auto lag = line.find("off_policy/max");
      if (lag != line.end()) {
        EXPECT_LE(lag->second, max);
      }
    }
  }
};

/// Two checkpoints of one step have the same tensors, to the bit.
inline void expect_same_bits(const Checkpoint& one, const Checkpoint& other) {
  EXPECT_EQ(one.step, other.step);
  ASSERT_FALSE(one.tensors.empty());
  for (const auto& [file, tensors] : one.tensors) {
    const std::vector<StoredTensor>& theirs = other.tensors.at(file);
    ASSERT_EQ(tensors.size(), theirs.size()) << file;
    for (const StoredTensor& tensor : tensors) {
      const auto found =
          std::ranges::find(theirs, tensor.info.name, [](const StoredTensor& stored) { return stored.info.name; });
      ASSERT_NE(found, theirs.end()) << file << " " << tensor.info.name;
      EXPECT_TRUE(tensor.bytes == found->bytes) << file << " " << tensor.info.name;
    }
  }
}

}  // namespace weightcast
