#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings/settings.h"

namespace weightcast::bench {

/// What one case of a suite has of its own: above all, how old the weights are that rollouts are sampled with.
struct TrainingCase {
  std::string name;
  std::optional<std::uint64_t> publish_interval;  ///< kappa; absent: nothing is published after the first weights
  std::optional<std::uint64_t> max_staleness;     ///< S; absent: all rollouts are admissible
  std::vector<std::uint64_t> lags = {0};          ///< the built-in generator's generator_lag
  std::vector<Setting> settings = {};             ///< of the learner; they win over the suite's
  std::uint64_t workers = 0;  ///< processes that make the rollouts, each beside a daemon; 0: the built-in generator
};

/// Training runs of the product's learner in this process, with its built-in generator or with workers: each case under
/// each seed, all from the same weights.
struct TrainingSuite {
  std::vector<Setting> settings;              ///< of the learner, for all runs
  std::vector<Setting> worker_settings = {};  ///< of each worker
  std::string task_program = {};              ///< a program beside the bench that is the task; "": it is built in
  std::uint64_t warm_up_steps = 0;            ///< supervised updates that make the weights which all runs start from
  std::uint64_t steps = 0;
  std::vector<std::uint64_t> seeds = {42, 123, 456};  ///< the first is also that of the warm-up
  std::vector<TrainingCase> cases;
  std::vector<Setting> quick_settings = {};  ///< of the learner, besides what make_quick() sets
};

/// What became of one run. Columns have an entry per training step, NaN where the step has none:
///   reward, evaluation, loss, kl            critic/score/mean, eval/avg@k, actor/pg_loss, rollout_corr/kl
///   grad_norm, entropy                      actor/grad_norm, actor/entropy
///   success                                 eval/success_rate
///   step_s, collect_s                       timing_s/step, timing_s/collect
///   lag_median, lag_p90, admitted           off_policy/median, off_policy/p90, off_policy/admissible_share
///   changed, ratio                          of the patch from the step before: changed share of cells, and bytes to
///                                           those of the weights
///   event_changed, event_ratio              of the patch from the publication before, where one is due
///   ten_changed, ten_ratio                  of the patch over ten steps, at each tenth
struct TrainingRun {
  std::string name;  ///< of its case
  std::uint64_t seed = 0;
  std::map<std::string, std::vector<double>> columns;
  std::vector<std::string> digests;                  ///< SHA-256 of the weights, before the first step and after each
  double lag_mean = 0, lag_median = 0, lag_p90 = 0;  ///< over all rollouts that were trained on
  bool has_diverged = false;                         ///< a weight was no finite number, and the run ended
};

/// The runs of one case, in the order of the suite's seeds.
[[nodiscard]] std::vector<const TrainingRun*> runs_of(const std::vector<TrainingRun>& runs, std::string_view name);

/// {name, seed, lag_mean, lag_median, lag_p90, has_diverged, columns: {NAME: [...]}, digests: [...]}; null stands for
/// NaN. And back: absent if it is none.
[[nodiscard]] nlohmann::json to_json(const TrainingRun& run);
[[nodiscard]] std::optional<TrainingRun> training_run(const nlohmann::json& json);
/// All that the suite's figures follow from, and those of one run: {name, seed, settings}, with workers also {workers,
/// worker_settings}, with a task that is a program {task_program}.
[[nodiscard]] nlohmann::json to_json(const TrainingSuite& suite);
[[nodiscard]] nlohmann::json run_json(const TrainingSuite& suite, const TrainingCase& c, std::uint64_t seed);

/// The settings of one run, without output_dir and model, and those of the run that makes the model.
[[nodiscard]] std::vector<Setting> settings_of(const TrainingSuite& suite, const TrainingCase& c, std::uint64_t seed);
[[nodiscard]] std::vector<Setting> warm_up_settings(const TrainingSuite& suite);

/// [[name, value], ...]
[[nodiscard]] nlohmann::json settings_json(const std::vector<Setting>& settings);
/// SHA-256 of `json` as text, in hexadecimal digits; so many of them name a file.
[[nodiscard]] std::string digest_of(const nlohmann::json& json);
inline constexpr std::size_t kDigestDigits = 16;

}  // namespace weightcast::bench
