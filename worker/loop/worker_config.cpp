#include "worker/loop/worker_config.h"

#include <array>

#include "worker/backend/backend_protocol.h"
#include "worker/engine/engine.h"
#include "worker/engine/version_follower.h"

namespace weightcast {
namespace {

using namespace std::string_view_literals;

constexpr std::array kDtypes{"float32"sv, "bfloat16"sv};
constexpr std::array kBackends{"engine"sv, "vllm"sv, "sglang"sv, "parallax"sv, "weightcast"sv};

/// The one table of keys: reading, printing and checking all go through it.
std::vector<SettingField> fields_of(RolloutWorkerConfig& c) {
  std::vector<SettingField> fields{
      {"learner", &c.learner, "HOST:PORT of the learner: what its rollout_listen says"},
      {"keys", &c.keys, "the file of this worker's keys; empty: connections are plain, on loopback only"},
      {"insecure", &c.insecure, "plain connections to other hosts, too"},
      {"name", &c.name, "of this worker, without keys; with keys it is the certificate's"},
      {"state_dir", &c.state_dir, "the state directory of the worker's daemon on this host"},
      {"spool_dir", &c.spool_dir, "where rollouts wait for the learner; one worker's own"},
      {"spool_bytes_max", &c.spool_bytes_max, "of rollouts that wait", 1 << 16, 1e15},
      {"threads", &c.threads, "that generate", 1, 1024},
      {"running_max", &c.running_max, "sequences that are generated together", 1, 65536},
      {"cache_bytes_max", &c.cache_bytes_max, "of keys and values", 1 << 16, 1e15},
      {"cache_dtype", &c.cache_dtype, "of keys and values", 0, 0, kDtypes},
      {"step_tokens_max", &c.step_tokens_max, "tokens that a step computes, of prompts and answers", 1, 1e6},
      {"in_flight", &c.in_flight, "what becomes of answers that have begun when a version comes", 0, 0, kInFlightNames},
      {"weights", &c.weights, "in the daemon's files, or one copy in memory that versions change in place", 0, 0,
       kWeightPlaceNames},
      {"reward_threads", &c.reward_threads, "that compute rewards", 1, 1024},
      {"reward_time_max", &c.reward_time_max, "seconds; a reward that takes longer costs its rollout", 0.01, 1e6},
      {"price_per_hour", &c.price_per_hour, "of this worker, for the learner's choice of workers"},
      {"promised_rollouts_per_s", &c.promised_rollouts_per_s, "for the same, before it is measured; 0: not known"},
      {"backend", &c.backend, "what generates: the worker's own engine, or a server", 0, 0, kBackends},
      {"backend_server", &c.backend_server, "HOST:PORT of the server that generates"},
      {"backend_control", &c.backend_control,
       "HOST:PORT that is told of versions (parallax: the scheduler); empty: "
       "backend_server"},
      {"backend_insecure", &c.backend_insecure, "plain connections to a server on another host"},
      {"backend_model", &c.backend_model, "the model's name in requests; empty: none is given"},
      {"backend_in_flight", &c.backend_in_flight,
       "answers under way when a version comes: end first, begin anew after it, or go on under it, with the keys and "
       "values that they have or with new ones",
       0, 0, kBackendSwitchNames},
      {"backend_check", &c.backend_check,
       "after each version compare the server's log-probabilities with our own, and refuse it where they differ"},
      {"backend_tolerance", &c.backend_tolerance,
       "mean difference that may be; 0: 0.001 for a server in FP32, 0.02 in FP16, 0.1 otherwise", 0, 100},
      {"backend_blocks_dir", &c.backend_blocks_dir,
       "parallax: where versions are written as blocks named by their CIDs"},
      {"backend_answer_time_max", &c.backend_answer_time_max, "seconds that the server has for an answer", 0.1, 1e6},
      {"backend_install_time_max", &c.backend_install_time_max, "seconds that the server has for a version", 0.1, 1e6},
      {"paced_rollouts_per_s", &c.paced_rollouts_per_s,
       "compute nothing, and generate so many rollouts of max_new_tokens with running_max together; 0: generate", 0,
       1e6},
      {"paced_jitter", &c.paced_jitter, "share by which a paced step is longer or shorter", 0, 1},
      {"paced_pause_s", &c.paced_pause_s, "for which a paced worker stands still when a version comes", 0, 1e6},
  };
  const std::vector<SettingField> program = task_program_fields(c.task_program);
  fields.insert(fields.end(), program.begin(), program.end());
  return fields;
}

Status required(std::string_view key, const std::string& value) {
  if (!value.empty()) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure, std::string(key) + " is empty; set it");
}

}  // namespace

Result<RolloutWorkerConfig> make_worker_config(std::span<const Setting> settings) {
  RolloutWorkerConfig config;
  const std::vector<SettingField> fields = fields_of(config);
  for (const Setting& setting : settings) WC_TRY(apply_setting(fields, setting));
  WC_TRY(required("learner", config.learner));
  WC_TRY(required("state_dir", config.state_dir));
  WC_TRY(required("spool_dir", config.spool_dir));
  if (config.keys.empty()) WC_TRY(required("name", config.name));
  if (config.backend != "engine") {
    WC_TRY(required("backend_server", config.backend_server));
    if (config.paced_rollouts_per_s > 0) {
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  "paced_rollouts_per_s is of the worker's own engine; leave it, or backend, out");
    }
  }
  return config;
}

std::string worker_config_table() {
  RolloutWorkerConfig defaults;
  return settings_table(fields_of(defaults));
}

std::string worker_config_text(const RolloutWorkerConfig& config) {
  RolloutWorkerConfig copy = config;
  return settings_text(fields_of(copy));
}

}  // namespace weightcast
