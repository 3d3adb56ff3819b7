#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings/operator_settings.h"
#include "base/settings/settings.h"
#include "base/settings/words.h"
#include "trainer/tasks/program/program_settings.h"
#include "trainer/tasks/reward_pool.h"
#include "worker/backend/backend.h"
#include "worker/backend/paced_engine.h"
#include "worker/engine/engine.h"
#include "worker/engine/version_follower.h"
#include "worker/learner/learner_client.h"

namespace weightcast {

/// The worker's own engine generates, or one that keeps a pace and computes nothing, or a server of a BackendKind.
enum class WorkerBackend : std::uint8_t { kEngine, kPaced, kVllm, kSglang, kParallax, kWeightcast };
constexpr auto words_of(WorkerBackend) {
  Words<2 + kWords<BackendKind>.size()> words{"engine", "paced"};
  std::ranges::copy(kWords<BackendKind>, words.begin() + 2);
  return words;
}
static_assert(to_string(WorkerBackend::kWeightcast) == to_string(BackendKind::kWeightcast));
/// Absent: no server.
[[nodiscard]] constexpr std::optional<BackendKind> server_kind(WorkerBackend backend) {
  return find_word<BackendKind>(to_string(backend));
}

/// What `weightcast-engine run` reads. Names are those of keys in configuration files; docs/SETTINGS.md lists them. How
/// answers are sampled, and from which prompts, the learner says.
struct RolloutWorkerConfig {
  LearnerClient::Options learner;
  std::string state_dir;
  std::string http_dir;

  EngineOptions engine = [] {
    EngineOptions options;
    options.running_max = 64;
    return options;
  }();
  WeightPlace weights = WeightPlace::kMapped;
  RewardPoolOptions rewards{.threads_max = 2};

  double price_per_hour = 0;
  double promised_rollouts_per_s = 0;

  WorkerBackend backend = WorkerBackend::kEngine;
  BackendOptions server;  ///< of a backend that is a server; what the run says of it is missing
  PacedOptions paced;     ///< of kPaced

  TaskProgramSettings task_program;  ///< keys task_program.NAME
  OperatorSettings operators;
};

/// Errors: kInvalidArgument, which names the key, its value and its range, or the nearest key or choice, or what is
/// missing.
[[nodiscard]] Result<RolloutWorkerConfig> make_worker_config(std::span<const Setting> settings);

/// The one description of the keys.
[[nodiscard]] std::vector<SettingField> worker_fields(RolloutWorkerConfig& config);

}  // namespace weightcast
