#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trainer/tasks/registry.h"

namespace weightcast {

/// What a run says of groups of rollouts: the learner's buffer and its workers go by it.
struct GroupSettings {
  std::uint64_t seed = 0;
  std::uint64_t rollout_batch_size = 128;   ///< rollouts of one training step; a multiple of group_size
  std::uint64_t group_size = 16;            ///< rollouts of one group
  std::uint64_t group_size_redundancy = 0;  ///< rollouts that are begun beyond those; the first group_size count
  bool filter_equal_rewards = false;        ///< groups whose rewards are all equal are of no use: advantages of 0
  std::optional<std::uint64_t> max_staleness = 4;  ///< S, in training steps; absent: unlimited
  /// ROLL Flash's alpha: 1 + alpha batches are leased, buffered or trained on together, and a rollout lags by no more
  /// steps (rounded up). Of a batch, the fraction's share may lag by the last of those steps. 0: synchronous. Absent:
  /// as few as keep the learner busy (RolloutDemand), within max_staleness.
  std::optional<double> async_generation_ratio;

  bool operator==(const GroupSettings&) const = default;
};

/// What a run says of prompts and answers.
struct EpisodeSettings {
  std::string task = "arithmetic";
  TaskOptions task_options;  ///< keys task_options.NAME
  bool enable_thinking = false;
  double temperature = 1;
  double top_p = 1;
  std::uint64_t max_prompt_length = 512;
  std::uint64_t max_new_tokens = 16;  ///< of one turn
  std::uint64_t turns_max = 1;
  double episode_time_max = 600;  ///< seconds
  std::uint64_t publish_interval = 1;

  bool operator==(const EpisodeSettings&) const = default;
};

/// What a worker needs to know to take part in a run: GET /v1/run. Names are those of the learner's configuration.
struct RunDescription : GroupSettings, EpisodeSettings {
  std::string run_id;              ///< made when the run began, and kept over restarts of the learner
  std::string task_data_digest;    ///< SHA-256 of the task's file of problems; "": it has none
  std::uint64_t eval_prompts = 0;  ///< so many of the task's problems are kept from training: see PromptOrder
  /// "none", "qwen" (Qwen3's), or one of Qwen2.5's: see PromptCodec. The learner finds out which its model has.
  std::string chat_template = "none";
  std::uint64_t tokens_max = 0;      ///< of a rollout: its prompt, answers and observations
  bool logprobs_recomputed = false;  ///< the learner does without the sampler's
  std::string model_digest;          ///< SHA-256 of config.json
  std::string tokenizer_digest;
  std::string adapter_digest;  ///< the same of adapter_config.json, where versions are adapters alone; else ""

  bool operator==(const RunDescription&) const = default;
};

/// Whether `text` may be a run_id: 1 to 64 lower-case hexadecimal digits. So it can name a directory, too.
[[nodiscard]] bool is_run_id(std::string_view text);

/// As a JSON object with the members by their names; null stands for unlimited.
[[nodiscard]] std::string write_run_description(const RunDescription& run);
/// Members that it does not know are ignored: a later learner may say more. Errors: kCorrupt, which names the member
/// that is missing or wrong.
[[nodiscard]] Result<RunDescription> read_run_description(std::string_view json);

}  // namespace weightcast
