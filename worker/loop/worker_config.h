#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings.h"
#include "tasks/program/program_settings.h"

namespace weightcast {

/// What `weightcast-worker run` reads. Names are those of keys in configuration files; docs/WORKERS.md lists them. How
/// answers are sampled, and from which prompts, the learner says.
struct RolloutWorkerConfig {
  std::string learner;
  std::string keys;
  bool insecure = false;
  std::string name;
  std::string state_dir;
  std::string spool_dir;
  std::uint64_t spool_bytes_max = std::uint64_t{256} << 20;

  std::uint64_t threads = 1;
  std::uint64_t running_max = 64;
  std::uint64_t cache_bytes_max = std::uint64_t{1} << 30;
  std::string cache_dtype = "float32";
  std::uint64_t step_tokens_max = 512;
  std::string in_flight = "keep";
  std::string weights = "mapped";

  std::uint64_t reward_threads = 2;
  double reward_time_max = 10;
  TaskProgramSettings task_program;  ///< keys task_program.NAME

  double price_per_hour = 0;
  double promised_rollouts_per_s = 0;

  std::string backend = "engine";
  std::string backend_server;
  std::string backend_control;
  bool backend_insecure = false;
  std::string backend_model;
  std::string backend_in_flight = "wait";
  bool backend_check = true;
  double backend_tolerance = 0;
  std::string backend_blocks_dir;
  double backend_answer_time_max = 600;
  double backend_install_time_max = 600;

  double paced_rollouts_per_s = 0;
  double paced_jitter = 0;
  double paced_pause_s = 0;
};

/// Errors: kInvalidArgument, which names the key, its value and its range, or the nearest key or choice, or what is
/// missing.
[[nodiscard]] Result<RolloutWorkerConfig> make_worker_config(std::span<const Setting> settings);

/// All keys as rows of a table in Markdown: name, default, values that it takes, meaning.
[[nodiscard]] std::string worker_config_table();

/// As a TOML file that gives the same configuration again.
[[nodiscard]] std::string worker_config_text(const RolloutWorkerConfig& config);

}  // namespace weightcast
