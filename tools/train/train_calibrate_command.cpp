#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "tools/shell/configured_command.h"
#include "tools/shell/stop_signal.h"
#include "tools/train/train_commands.h"
#include "trainer/config/config.h"
#include "trainer/loop/learner.h"
#include "trainer/metrics/metrics.h"

namespace weightcast {
namespace {

constexpr std::size_t kSteps = 5;
constexpr std::size_t kDropped = 1;  // the first takes memory, and reads files

struct CalibrateFlags {
  LearnerConfig checked;
  GivenSettings given;
  bool json = false;
};

/// Seconds of a step without its rollouts: the median of the steps of a run.
Result<double> step_seconds(FileSystem& files, const std::filesystem::path& directory) {
  WC_ASSIGN(const std::vector<Metrics> lines, read_metrics(files, directory / "metrics.jsonl"));
  std::vector<double> steps_s;
  for (const Metrics& line : lines) {
    if (!line.contains("training/global_step")) continue;
    steps_s.push_back(line.at("timing_s/step") - line.at("timing_s/collect"));
  }
  if (steps_s.size() < kDropped + kSteps) {
    return fail(Errc::kClosed, Op::kVerify, fmt::format("{} of {} steps were made", steps_s.size(), kDropped + kSteps));
  }
  const auto begin = steps_s.begin() + kDropped, middle = begin + kSteps / 2;
  std::nth_element(begin, middle, steps_s.end());
  return *middle;
}

Status calibrate(const CalibrateFlags& flags) {
  WC_ASSIGN(std::vector<Setting> settings, flags.given.all());
  WC_ASSIGN(const LearnerConfig meant, make_config(settings));
  const std::filesystem::path directory = std::filesystem::path(meant.output_dir) / "calibration";
  const std::string steps = std::to_string(kDropped + kSteps);
  settings.insert(settings.end(), {{"output_dir", directory.string()},
                                   {"total_training_steps", steps},
                                   {"rollout_source", "generator"},
                                   {"max_additional_running_prompts", "0"},
                                   {"num_env_groups", "0"},
                                   {"group_size_redundancy", "0"},
                                   {"generator_lag", "0"},
                                   {"filter_equal_rewards", "false"},
                                   {"sft_steps", "0"},
                                   {"eval_interval", "0"},
                                   {"checkpoint_interval", "0"},
                                   {"publish_state", ""},
                                   {"sync_drift_max", "unlimited"}});
  WC_ASSIGN(const LearnerConfig config, make_config(settings));
  std::error_code error;
  std::filesystem::remove_all(directory, error);
  PosixFileSystem files;
  const auto measured = [&]() -> Result<double> {
    WC_ASSIGN(const std::unique_ptr<Learner> learner, Learner::make(files, config));
    WC_TRY(learner->run(stop_on_signals()));
    return step_seconds(files, directory);
  }();
  std::filesystem::remove_all(directory, error);
  WC_ASSIGN(const double step_s, measured);
  if (flags.json) {
    nlohmann::json pool{{"T_s", step_s},
                        {"R", meant.rollout_batch_size},
                        {"kappa", meant.publish_interval},
                        {"alpha", meant.provision_alpha}};
    if (meant.max_staleness) pool["S"] = *meant.max_staleness;
    fmt::print("{}\n", json_text(pool));
  } else {
    fmt::print("a training step takes {:.4g} s without its {} rollouts: the median of {}\n", step_s,
               meant.rollout_batch_size, kSteps);
  }
  return {};
}

}  // namespace

void add_train_calibrate_command(const Commands& commands) {
  const auto [command, flags] = add_command<CalibrateFlags>(
      commands, "calibrate", "How long a training step takes that waits for nothing", calibrate);
  add_setting_options(*command, config_fields(flags->checked), "docs/SETTINGS.md", flags->given);
  command->add_flag("--json", flags->json, "Print {T_s, R, kappa, S, alpha}, the beginning of a pool for `plan`");
}

}  // namespace weightcast
