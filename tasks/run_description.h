#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tasks/run_settings.h"

namespace weightcast {

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
