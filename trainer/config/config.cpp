#include "trainer/config/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "trainer/config/generator_lags.h"
#include "trainer/config/presets.h"
#include "trainer/model/device_name.h"
#include "trainer/tasks/program/open_task.h"

namespace weightcast {
LearnerConfig::LearnerConfig() {
  clip_ratio_low = 0.2;
  clip_ratio_high = 0.2;
  clip_ratio_c = 3;
  ratio_low = 0;
  ratio_high = 1;
}

std::vector<SettingField> config_fields(LearnerConfig& c) {
  std::vector<SettingField> fields{
      {"preset", &c.preset, "a recipe, applied before all other keys", preset_names()},
      {"output_dir", &c.output_dir, "where metrics, checkpoints and the configuration go"},
      {"seed", &c.seed, "of the first weights, prompts and samples", 0, 9e18},
      {"threads", &c.threads, "of LibTorch's operations", 1, 1024},
      {"dtype", &c.dtype, "of the weights that are trained with and published; their masters are float32"},
      {"device", &c.device, "cpu, cuda or cuda:N: where the model computes and learns"},
      {"tf32", &c.tf32, "on a GPU: products of float32 matrices may round their factors to TF32"},
      {"task", &c.task, "where prompts and rewards come from", configured_task_names()},
      {"task_options", &c.task_options, "options of the task (docs/TASKS.md)"},
      {"task_data", &c.task_data, "the task's file of problems"},
      {"model", &c.model, "a directory in Hugging Face's layout; empty: random weights of the sizes below"},
      {"init_hidden_size", &c.init_hidden_size, "of a model with random weights", 8, 65536},
      {"init_intermediate_size", &c.init_intermediate_size, "the same", 8, 262144},
      {"init_num_hidden_layers", &c.init_num_hidden_layers, "the same", 1, 512},
      {"init_num_attention_heads", &c.init_num_attention_heads, "the same", 1, 512},
      {"init_num_key_value_heads", &c.init_num_key_value_heads, "the same", 1, 512},
      {"chat_template", &c.chat_template,
       "how messages become text; none: one after the other; qwen: by the model's own template"},
      {"enable_thinking", &c.enable_thinking, "of Qwen3's chat template"},
      {"rollout_source", &c.rollout_source, "the built-in generator, files of trajectories, or workers that send them"},
      {"rollout_files", &c.rollout_files, "JSONL files of trajectories"},
      {"rollout_listen", &c.rollout_listen, "HOST:PORT where workers' rollouts are taken; port 0: a free one"},
      {"rollout_keys", &c.rollout_keys,
       "file of the learner's keys, those of the origin; empty: plain, on loopback alone"},
      {"rollout_insecure", &c.rollout_insecure, "plain connections beyond loopback, too"},
      {"behaviour_logprobs", &c.behaviour_logprobs, "recompute: for files without log-probabilities"},
      {"generator_lag", &c.generator_lag,
       "steps by which the generator hears of a publication late, up to 64; of several, such as 1,2,2,3, each group "
       "draws one"},
      {"generator_batch_size", &c.generator_batch_size, "sequences that the generator decodes together", 1, 65536},
      {"temperature", &c.temperature, "of samples and of the loss", 0.01, 100},
      {"top_p", &c.top_p, "of samples; log-probabilities stay those of all tokens", 0.01, 1},
      {"max_prompt_length", &c.max_prompt_length, "in tokens; a longer prompt is an error", 1, 1e6},
      {"max_new_tokens", &c.max_new_tokens, "of a response", 1, 1e6},
      {"turns_max", &c.turns_max, "responses of an episode, of tasks that have several turns", 1, 1e4},
      {"max_sequence_length", &c.max_sequence_length,
       "tokens of a rollout, of all its turns; 0: turns_max times max_prompt_length and max_new_tokens", 0, 1e9},
      {"episode_time_max", &c.episode_time_max, "seconds of an episode; the rewards until then count", 0.001, 1e6},
      {"reward_threads", &c.reward_threads, "that compute rewards and play environments", 1, 1024},
      {"reward_time_max", &c.reward_time_max, "seconds of a reward; one that takes longer costs its rollout", 0.001,
       1e6},
      {"total_training_steps", &c.total_training_steps, "the run ends after so many", 0},
      {"rollout_batch_size", &c.rollout_batch_size, "rollouts of a training step, R", 1, 1e8},
      {"group_size", &c.group_size, "rollouts of a prompt, n", 1, 1e8},
      {"max_staleness", &c.max_staleness, "S: how many steps a rollout's oldest token may lag"},
      {"async_generation_ratio", &c.async_generation_ratio,
       "alpha: 1 + alpha batches are generated, buffered or trained on together; without it as few as the learner "
       "needs",
       0, 1000},
      {"max_additional_running_prompts", &c.max_additional_running_prompts,
       "groups generated beyond those, for what is filtered, slow or lost", 0, 1e6},
      {"num_env_groups", &c.num_env_groups, "the same, with those of a batch: 9 where a batch has 8; 0: none", 0, 1e6},
      {"group_size_redundancy", &c.group_size_redundancy,
       "rollouts begun beyond group_size in each group; the first group_size that end count", 0, 1e6},
      {"sample_order", &c.order, "which groups a batch takes first"},
      {"filter_equal_rewards", &c.filter_equal_rewards, "drop groups whose rewards are all equal"},
      {"lora_rank", &c.lora_rank, "of a low-rank adapter, which learns instead of the weights; 0: none", 0, 4096},
      {"lora_alpha", &c.lora_alpha, "over lora_rank what the adapter's product is multiplied with", 0, 1e6},
      {"lora_dropout", &c.lora_dropout, "share of the adapter's inputs that an update leaves out", 0, 0.99},
      {"lora_target_modules", &c.lora_target_modules,
       "names such as q_proj, separated by commas; all-linear: every matrix of the layers"},
      {"lora_publish", &c.lora_publish, "merged: whole weights; adapter: the adapter alone"},
      {"world_size", &c.world_size, "processes that share the work of updates", 1, 1024},
      {"rank", &c.rank, "which of them this one is; rank 0 does all but updates", 0, 1023},
      {"rendezvous", &c.rendezvous, "HOST:PORT at which rank 0 listens, if there are several"},
      {"updates_per_step", &c.updates_per_step, "optimiser updates over disjoint parts of a step's rollouts", 1, 1e6},
      {"ppo_epochs", &c.ppo_epochs, "times that a step goes over its rollouts", 1, 1000},
      {"micro_batch_tokens", &c.micro_batch_tokens, "tokens of one forward pass, at least one sequence", 1, 1e8},
      {"activation_checkpointing", &c.activation_checkpointing,
       "keep each layer's input alone for the backward pass: less memory, a third more work"},
      {"learning_rate", &c.learning_rate, "of the training steps, after the warm-up", 0, 1},
      {"lr_schedule", &c.lr_schedule, "after the warm-up, over all updates"},
      {"lr_warmup_updates", &c.lr_warmup_updates, "updates until the full learning rate"},
      {"adam_beta1", &c.adam_beta1, "decay of the first moment", 0, 0.999999},
      {"adam_beta2", &c.adam_beta2, "decay of the second moment", 0, 0.999999},
      {"adam_epsilon", &c.adam_epsilon, "added to the root of the second moment", 1e-16, 1},
      {"weight_decay", &c.weight_decay, "of matrices", 0, 1},
      {"max_grad_norm", &c.max_grad_norm, "gradients are scaled down to it; 0: never", 0, 1e9},
      {"stochastic_rounding", &c.stochastic_rounding, "of bfloat16 weights; false: to nearest"},
      {"pg_variant", &c.pg_variant, "the policy-gradient loss"},
      {"clip_ratio_low", OptionalNumber{&c.clip_ratio_low}, "how far below 1 a ratio counts", 0, 1},
      {"clip_ratio_high", OptionalNumber{&c.clip_ratio_high}, "how far above 1 a ratio counts", 0, 1000},
      {"clip_ratio_c", OptionalNumber{&c.clip_ratio_c, true}, "of dual clipping; 0: off", 0, 1000},
      {"loss_agg_mode", &c.loss_agg_mode, "how tokens' losses become one"},
      {"advantage_estimator", &c.advantage_estimator,
       "grpo: rewards against those of their group; gae: rewards per token against a value head's"},
      {"advantage_norm", &c.advantage_norm,
       "how rewards become advantages; under gae none leaves them as they are, std and batch whiten the batch"},
      {"gamma", &c.gamma, "discount per token, of gae", 0, 1},
      {"gae_lambda", &c.gae_lambda, "of gae", 0, 1},
      {"value_loss_coef", &c.value_loss_coef, "of the value head's loss, for gae; 0: no value head", 0, 1000},
      {"value_clip_range", &c.value_clip_range, "how far a value counts from the step's first one; 0: any", 0, 1e6},
      {"value_learning_rate", &c.value_learning_rate, "of the value head", 0, 1},
      {"kl_loss_coef", &c.kl_loss_coef, "of the KL to the reference model; 0: no such model", 0, 1000},
      {"kl_loss_type", &c.kl_loss_type, "its estimator"},
      {"kl_reward_coef", &c.kl_reward_coef, "of the KL that each token's reward loses; 0: none", 0, 1000},
      {"kl_reward_type", &c.kl_reward_type, "its estimator"},
      {"entropy_coeff", &c.entropy_coeff, "of the entropy that is added to the objective", 0, 1000},
      {"tis_cap", OptionalNumber{&c.tis_cap, true},
       "bound of the weight between learner and sampler, of ppo, decoupled_ppo and reinforce; 0: off", 0, 1e6},
      {"tis_level", &c.tis_level, "sequence: that weight is the product over a rollout's tokens"},
      {"ratio_low", OptionalNumber{&c.ratio_low}, "least ratio of tis, topr and weighted_topr", 0, 1e6},
      {"ratio_high", OptionalNumber{&c.ratio_high}, "greatest ratio of the same, and of echo2's weight", 0, 1e6},
      {"ratio_level", &c.ratio_level,
       "sequence: the ratio in tis, cispo, topr and weighted_topr is the product over a rollout's tokens"},
      {"topr_positive_weight", &c.topr_weight_positive, "of weighted_topr", 0, 1e6},
      {"topr_negative_weight", &c.topr_weight_negative, "the same", 0, 1e6},
      {"sft_steps", &c.sft_steps, "updates of supervised fine-tuning before the first training step"},
      {"sft_data", &c.sft_data, "JSONL of {prompt, response}; empty: the task's own solutions"},
      {"sft_batch_size", &c.sft_batch_size, "examples of an update", 1, 1e6},
      {"sft_learning_rate", &c.sft_learning_rate, "of the warm-up", 0, 1},
      {"eval_interval", &c.eval_interval, "steps between evaluations; 0: none"},
      {"eval_prompts", &c.eval_prompts, "prompts of an evaluation, which training does not use", 1, 1e6},
      {"eval_samples", &c.eval_samples, "k of avg@k and pass@k", 1, 1e4},
      {"eval_temperature", &c.eval_temperature, "0: the most probable token", 0, 100},
      {"eval_top_p", &c.eval_top_p, "of the samples of evaluations", 0.01, 1},
      {"checkpoint_interval", &c.checkpoint_interval, "steps between checkpoints; 0: at the end only"},
      {"checkpoints_kept", &c.checkpoints_kept, "older ones are deleted", 1, 1e6},
      {"publish_state", &c.publish_state, "the state directory of the origin's daemon; empty: nothing is published"},
      {"publish_interval", &c.publish_interval, "kappa: steps between publications", 1},
      {"sync_drift_max", &c.sync_drift_max,
       "ECHO's asynchronous mode: publish when the learner is more steps than this ahead of a worker, instead of every "
       "publish_interval; unlimited: off"},
      {"publish_sparse", &c.publish_sparse, "publish changed cells where those are few"},
      {"publish_new_model", &c.publish_new_model,
       "the first weights may have other tensors than the origin's last version; the workers take the other model"},
      {"learner_price_per_hour", &c.learner_price_per_hour, "for cost_total", 0, 1e9},
      {"provision", &c.provision,
       "with workers: tell them to roll out or to wait, as the loop needs them; cheapest first, or at random"},
      {"provision_alpha", &c.provision_alpha, "workers give so many times the least rate that keeps the learner busy",
       0.001, 1000},
      {"paced_step_s", &c.paced_step_s, "learn nothing, and let each step take so long; 0: learn", 0, 1e6},
      {"paced_jitter", &c.paced_jitter, "share by which a paced step is longer or shorter", 0, 1},
  };
  add_task_program_fields(fields, c.task_program);
  add_operator_fields(fields, c.operators);
  return fields;
}

namespace {

Status wrong(std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, std::move(why)); }

/// The generator's rollouts must be admissible until its next weights come: of several lags those with the least.
Status check_lag(const LearnerConfig& c) {
  WC_ASSIGN(const GeneratorLags lags, GeneratorLags::parse(c.generator_lag));
  const std::uint64_t lag = c.publish_interval + lags.least() - 1;
  const auto refuse = [&](std::string_view key, const std::string& value) {
    return wrong(fmt::format(
        "{} is {}; with publish_interval {} and generator_lag {} the generator's rollouts lag up to {} steps", key,
        value, c.publish_interval, c.generator_lag, lag));
  };
  if (c.max_staleness && lag > *c.max_staleness) return refuse("max_staleness", fmt::format("{}", *c.max_staleness));
  if (!c.async_generation_ratio) return {};
  const double ratio = *c.async_generation_ratio, steps = std::ceil(ratio), lag_steps = static_cast<double>(lag);
  // With a fractional ratio only a part of a batch may be as old as the oldest step.
  const bool is_partial = steps > ratio && lags.least() > 0;
  if (lag_steps > steps || (is_partial && lag_steps == steps)) {
    return refuse("async_generation_ratio", fmt::format("{}", ratio));
  }
  return {};
}

/// What only groups can be given that are made side by side, by workers.
Status check_spare_groups(const LearnerConfig& c) {
  // Other ranks than 0 take no rollouts, and need not say from where.
  if (c.rollout_source == RolloutsFrom::kHttp || c.rank > 0) return {};
  for (const auto& [key, value] :
       {std::pair("max_additional_running_prompts", c.max_additional_running_prompts),
        std::pair("num_env_groups", c.num_env_groups), std::pair("group_size_redundancy", c.group_size_redundancy)}) {
    if (value == 0) continue;
    return wrong(fmt::format(
        "{} is {}, and rollout_source '{}', which gives each batch just its own groups: none is made beside "
        "them that could stand in for a slow one; set rollout_source to http, or {} to 0",
        key, value, to_string(c.rollout_source), key));
  }
  return {};
}

/// What no single key says.
Status check_together(const LearnerConfig& c) {
  if (c.rollout_batch_size % c.group_size != 0) {
    return wrong(fmt::format("rollout_batch_size is {}; it is a multiple of group_size ({})", c.rollout_batch_size,
                             c.group_size));
  }
  if (c.max_sequence_length > 0 && c.max_sequence_length < c.max_prompt_length + c.max_new_tokens) {
    return wrong(
        fmt::format("max_sequence_length is {}; a first turn takes up to max_prompt_length ({}) and "
                    "max_new_tokens ({}) together; 0 sets no other bound",
                    c.max_sequence_length, c.max_prompt_length, c.max_new_tokens));
  }
  if (c.updates_per_step > c.rollout_batch_size) {
    return wrong(fmt::format("updates_per_step is {}; it is at most rollout_batch_size ({})", c.updates_per_step,
                             c.rollout_batch_size));
  }
  if (c.sync_drift_max && c.rollout_source != RolloutsFrom::kHttp) {
    return wrong(fmt::format("sync_drift_max is {}, and rollout_source '{}'; it is for workers, whose source is http",
                             *c.sync_drift_max, to_string(c.rollout_source)));
  }
  // Other ranks than 0 publish nothing, and need not say where.
  if (c.sync_drift_max && c.publish_state.empty() && c.rank == 0) {
    return wrong(
        fmt::format("sync_drift_max is {}, and publish_state is empty: nothing would be published, so that workers "
                    "drift for ever; name the state directory of the origin's daemon, or leave sync_drift_max out",
                    *c.sync_drift_max));
  }
  if (c.sync_drift_max && c.rollout_batch_size % c.updates_per_step != 0) {
    return wrong(
        fmt::format("with sync_drift_max a batch is whole mini-batches: rollout_batch_size ({}) is a multiple of "
                    "updates_per_step ({})",
                    c.rollout_batch_size, c.updates_per_step));
  }
  if (c.init_num_attention_heads % c.init_num_key_value_heads != 0 ||
      c.init_hidden_size % (2 * c.init_num_attention_heads) != 0) {
    return wrong(
        fmt::format("init_num_attention_heads is {}; it is a multiple of init_num_key_value_heads ({}), and "
                    "init_hidden_size ({}) a multiple of twice as many",
                    c.init_num_attention_heads, c.init_num_key_value_heads, c.init_hidden_size));
  }
  if (c.rollout_source == RolloutsFrom::kFiles && c.rollout_files.empty()) {
    return wrong("rollout_source is 'files', and rollout_files is empty; name at least one file");
  }
  if (c.rollout_source == RolloutsFrom::kGenerator) WC_TRY(check_lag(c));
  WC_TRY(check_spare_groups(c));
  if (!c.max_staleness && !c.async_generation_ratio && c.publish_interval > c.total_training_steps &&
      c.total_training_steps > 0) {
    return wrong(
        fmt::format("publish_interval is {} and total_training_steps {}, so nothing is ever published; that "
                    "needs a max_staleness",
                    c.publish_interval, c.total_training_steps));
  }
  WC_ASSIGN(const DeviceName device, parse_device_name(c.device));
  if (c.tf32 && !device.cuda) return wrong("tf32 is true, and device is 'cpu', which computes in full float32");
  if (c.rank >= c.world_size) {
    return wrong(fmt::format("rank is {}; it is below world_size ({})", c.rank, c.world_size));
  }
  if (c.world_size > 1 && c.paced_step_s > 0) {
    return wrong(fmt::format("paced_step_s is {}: nothing is computed, so no work is to be shared; set world_size to 1",
                             c.paced_step_s));
  }
  if (c.world_size > 1 && c.rendezvous.empty()) {
    return wrong(
        fmt::format("world_size is {}, and rendezvous is empty; give all ranks the HOST:PORT of rank 0", c.world_size));
  }
  if (c.advantage_estimator == AdvantageEstimator::kGae && c.advantage_norm == AdvantageNorm::kRloo) {
    return wrong(
        "advantage_norm is 'rloo', which compares rewards of a group; under advantage_estimator 'gae' it is "
        "std, batch or none");
  }
  WC_TRY(loss_options(c));
  WC_TRY(lora_config(c));
  WC_TRY(learning_rate_schedule(c));
  return {};
}

}  // namespace

Result<LearnerConfig> make_config(std::span<const Setting> settings) {
  LearnerConfig config;
  const std::vector<SettingField> fields = config_fields(config);
  for (const Setting& setting : settings) {
    if (setting.name == fields.front().name()) WC_TRY(apply_setting(fields, setting));
  }
  for (const Setting& setting : preset_settings(config.preset)) WC_TRY(apply_setting(fields, setting));
  for (const Setting& setting : settings) WC_TRY(apply_setting(fields, setting));
  // ECHO-2 has one knob: kappa = S - 1.
  const auto sets_interval = [](const Setting& setting) { return setting.name == "publish_interval"; };
  if (config.preset == "echo2" && config.max_staleness && std::ranges::none_of(settings, sets_interval)) {
    config.publish_interval = std::max<std::uint64_t>(*config.max_staleness, 2) - 1;
  }
  WC_TRY(check_together(config));
  return config;
}

std::string config_text(const LearnerConfig& config) {
  LearnerConfig copy = config;
  return settings_text(config_fields(copy));
}

Result<PolicyLossOptions> loss_options(const LearnerConfig& c) {
  PolicyLossOptions options = c;
  options.horizon = static_cast<double>(c.max_new_tokens);
  WC_TRY(validate(options));
  return options;
}

std::uint64_t rollout_tokens_max(const LearnerConfig& c) {
  const std::uint64_t all_turns = c.turns_max * (c.max_prompt_length + c.max_new_tokens);
  return c.max_sequence_length == 0 ? all_turns : std::min(all_turns, c.max_sequence_length);
}

bool publishes_adapter(const LearnerConfig& c) { return c.lora_rank > 0 && c.lora_publish == LoraPublish::kAdapter; }

Result<std::optional<LoraConfig>> lora_config(const LearnerConfig& c) {
  if (c.lora_rank == 0) return std::optional<LoraConfig>();
  LoraConfig lora;
  lora.rank = static_cast<std::int64_t>(c.lora_rank);
  lora.alpha = c.lora_alpha;
  lora.dropout = c.lora_dropout;
  lora.target_modules = c.lora_target_modules;
  if (c.lora_target_modules == std::vector<std::string>{"all-linear"}) {
    lora.target_modules.assign(lora_target_modules().begin(), lora_target_modules().end());
  }
  WC_TRY(check_lora_config(lora));
  return std::optional(std::move(lora));
}

bool has_value_head(const LearnerConfig& c) {
  return c.advantage_estimator == AdvantageEstimator::kGae && c.value_loss_coef > 0;
}

bool reads_reference(const LearnerConfig& c) { return c.kl_loss_coef > 0 || c.kl_reward_coef > 0; }

bool uses_cuda(const LearnerConfig& c) { return c.device != "cpu"; }

Result<LearningRateSchedule> learning_rate_schedule(const LearnerConfig& c) {
  LearningRateSchedule schedule;
  schedule.peak = c.learning_rate;
  schedule.decay = c.lr_schedule;
  schedule.warmup_updates = c.lr_warmup_updates;
  schedule.updates_total = c.total_training_steps * c.updates_per_step * c.ppo_epochs;
  // A run without a training step asks for no rate.
  if (c.total_training_steps > 0) WC_TRY(validate(schedule));
  return schedule;
}

ReplayOptions replay_options(const LearnerConfig& config) {
  ReplayOptions options = config;
  options.leased_only = config.rollout_source == RolloutsFrom::kHttp;
  // Room for a batch ahead of the one in need, of rollouts of the largest size.
  options.rollouts_max = std::max<std::uint64_t>(options.rollouts_max, 2 * config.rollout_batch_size);
  options.bytes_max = std::numeric_limits<std::uint64_t>::max() / 2;
  return options;
}

}  // namespace weightcast
