#include "worker/loop/worker_config.h"

#include <fmt/format.h>

namespace weightcast {
namespace {

constexpr Duration kSecond = std::chrono::seconds(1);

}  // namespace

std::vector<SettingField> worker_fields(RolloutWorkerConfig& c) {
  std::vector<SettingField> fields{
      {"learner", &c.learner.learner, "HOST:PORT of the learner: what its rollout_listen says"},
      {"keys", &c.learner.trust.keys, "the file of this worker's keys; empty: connections are plain, on loopback only"},
      {"insecure", &c.learner.trust.insecure, "plain connections to other hosts, too"},
      {"name", &c.learner.name, "of this worker, without keys; with keys it is the certificate's"},
      {"state_dir", &c.state_dir, "the state directory of the worker's daemon on this host"},
      {"waiting_bytes_max", &c.learner.waiting_bytes_max, "of rollouts that wait in memory for the learner", 1 << 16,
       1e15},
      {"threads", &c.engine.threads, "that generate", 1, 1024},
      {"running_max", &c.engine.running_max, "sequences that are generated together", 1, 65536},
      {"cache_bytes_max", &c.engine.cache_bytes_max, "of keys and values", 1 << 16, 1e15},
      {"cache_dtype", &c.engine.cache_dtype, "of keys and values"},
      {"step_tokens_max", &c.engine.step_tokens_max, "tokens that a step computes, of prompts and answers", 1, 1e6},
      {"in_flight", &c.engine.in_flight, "what becomes of answers that have begun when a version comes"},
      {"weights", &c.weights, "in the daemon's files, or one copy in memory that versions change in place"},
      {"reward_threads", &c.rewards.threads_max, "that compute rewards", 1, 1024},
      {"reward_time_max", DurationIn{&c.rewards.time_max, kSecond},
       "seconds; a reward that takes longer costs its rollout", 0.01, 1e6},
      {"price_per_hour", &c.price_per_hour, "of this worker, for the learner's choice of workers"},
      {"promised_rollouts_per_s", &c.promised_rollouts_per_s, "for the same, before it is measured; 0: not known"},
      {"backend", &c.backend,
       "what generates: the worker's own engine, one that keeps a pace and computes nothing, or a server"},
      {"backend_server", &c.server.server, "HOST:PORT of the server that generates"},
      {"backend_control", &c.server.control,
       "HOST:PORT that is told of versions (parallax: the scheduler); empty: "
       "backend_server"},
      {"backend_insecure", &c.server.trust.insecure, "plain connections to a server on another host"},
      {"backend_model", &c.server.protocol.model,
       "the model's name in requests, or the adapter's that the server follows; empty: none is given"},
      {"backend_blocks_dir", &c.server.protocol.blocks,
       "parallax: where versions are written as blocks named by their CIDs"},
      {"backend_answer_time_max", DurationIn{&c.server.answer_time_max, kSecond},
       "seconds that the server has for an answer", 0.1, 1e6},
      {"backend_install_time_max", DurationIn{&c.server.install_time_max, kSecond},
       "parallax: seconds that the server has for a version", 0.1, 1e6},
      {"paced_rollouts_per_s", &c.paced.rollouts_per_s, "paced: rollouts of max_new_tokens, with running_max together",
       0, 1e6},
      {"paced_jitter", &c.paced.jitter, "paced: share by which a step is longer or shorter", 0, 1},
      {"paced_pause_s", DurationIn{&c.paced.pause, kSecond},
       "paced: seconds for which it stands still when a version comes", 0, 1e6},
  };
  add_task_program_fields(fields, c.task_program);
  fields.push_back(
      {"http_dir", &c.http_dir, "where http_address is written, which has the port of http; empty: nowhere"});
  add_operator_fields(fields, c.operators);
  return fields;
}

Result<RolloutWorkerConfig> make_worker_config(std::span<const Setting> settings) {
  RolloutWorkerConfig config;
  const std::vector<SettingField> fields = worker_fields(config);
  for (const Setting& setting : settings) WC_TRY(apply_setting(fields, setting));
  WC_TRY(check_is_set("learner", !config.learner.learner.host.empty()));
  WC_TRY(check_is_set("state_dir", !config.state_dir.empty()));
  WC_TRY(check_is_set("name", !config.learner.name.empty() || !config.learner.trust.keys.empty()));
  if (server_kind(config.backend)) WC_TRY(check_is_set("backend_server", !config.server.server.host.empty()));
  if ((config.backend == WorkerBackend::kPaced) != (config.paced.rollouts_per_s > 0)) {
    return fail(
        Errc::kInvalidArgument, Op::kConfigure,
        fmt::format("backend is '{}' and paced_rollouts_per_s is {}; 'paced' takes one above 0, and others none",
                    to_string(config.backend), config.paced.rollouts_per_s));
  }
  return config;
}

}  // namespace weightcast
