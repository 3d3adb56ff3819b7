#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/settings.h"
#include "model/lora_config.h"
#include "tasks/program/program_settings.h"
#include "tasks/registry.h"
#include "trainer/loss/policy_loss_options.h"
#include "trainer/optimiser/schedule.h"
#include "trainer/replay/replay_options.h"

namespace weightcast {

/// What `weightcast-train run` reads. Names are those of keys in configuration files; docs/TRAINING.md lists them.
/// Versions, publish_interval, max_staleness and async_generation_ratio count training steps.
struct LearnerConfig {
  std::string output_dir;
  std::uint64_t seed = 0;
  std::uint64_t threads = 1;
  std::string dtype = "float32";
  std::string device = "cpu";
  bool tf32 = false;

  std::string task = "arithmetic";
  TaskOptions task_options;  ///< keys task_options.NAME
  std::string task_data;

  std::string model;
  std::uint64_t init_hidden_size = 128;
  std::uint64_t init_intermediate_size = 512;
  std::uint64_t init_num_hidden_layers = 4;
  std::uint64_t init_num_attention_heads = 4;
  std::uint64_t init_num_key_value_heads = 2;
  std::string chat_template = "none";
  bool enable_thinking = false;

  std::string rollout_source = "generator";
  std::string rollout_files;  ///< separated by commas
  std::string rollout_listen = "127.0.0.1:7600";
  std::string rollout_keys;
  bool rollout_insecure = false;
  std::string behaviour_logprobs = "given";
  std::string generator_lag = "0";  ///< GeneratorLags
  std::uint64_t generator_batch_size = 256;
  double temperature = 1;
  double top_p = 1;
  std::uint64_t max_prompt_length = 512;
  std::uint64_t max_new_tokens = 16;
  std::uint64_t turns_max = 1;
  std::uint64_t max_sequence_length = 0;
  double episode_time_max = 600;
  std::uint64_t reward_threads = 4;
  double reward_time_max = 10;

  std::uint64_t total_training_steps = 100;
  std::uint64_t rollout_batch_size = 128;
  std::uint64_t group_size = 16;
  std::optional<std::uint64_t> max_staleness = 4;
  std::optional<double> async_generation_ratio;
  std::uint64_t max_additional_running_prompts = 0;
  std::uint64_t num_env_groups = 0;
  std::uint64_t group_size_redundancy = 0;
  std::string sample_order = "oldest_first";
  bool filter_equal_rewards = false;

  std::uint64_t lora_rank = 0;
  double lora_alpha = 16;
  double lora_dropout = 0;
  std::string lora_target_modules = "all-linear";
  std::string lora_publish = "merged";

  std::uint64_t world_size = 1;
  std::uint64_t rank = 0;
  std::string rendezvous;

  std::uint64_t updates_per_step = 2;
  std::uint64_t ppo_epochs = 1;
  std::uint64_t micro_batch_tokens = 8192;
  bool activation_checkpointing = false;
  double learning_rate = 1e-6;
  std::string lr_schedule = "constant";
  std::uint64_t lr_warmup_updates = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double weight_decay = 0.01;
  double max_grad_norm = 1;
  bool stochastic_rounding = false;

  std::string pg_variant = "ppo";
  double clip_ratio_low = 0.2;
  double clip_ratio_high = 0.2;
  double clip_ratio_c = 3;
  std::string loss_agg_mode = "token-mean";
  std::string advantage_estimator = "grpo";
  std::string advantage_norm = "std";
  double gamma = 1;
  double gae_lambda = 1;
  double value_loss_coef = 0.5;
  double value_clip_range = 0.5;
  double value_learning_rate = 1e-5;
  double kl_loss_coef = 0;
  std::string kl_loss_type = "k3";
  double kl_reward_coef = 0;
  std::string kl_reward_type = "k1";
  double entropy_coeff = 0;
  double tis_cap = 0;
  std::string tis_level = "token";
  double ratio_low = 0;
  double ratio_high = 1;
  std::string ratio_level = "token";
  double topr_positive_weight = 1;
  double topr_negative_weight = 1;

  std::uint64_t sft_steps = 0;
  std::string sft_data;
  std::uint64_t sft_batch_size = 64;
  double sft_learning_rate = 1e-3;

  std::uint64_t eval_interval = 0;
  std::uint64_t eval_prompts = 64;
  std::uint64_t eval_samples = 4;
  double eval_temperature = 1;
  double eval_top_p = 1;

  std::uint64_t checkpoint_interval = 0;
  std::uint64_t checkpoints_kept = 2;

  std::string publish_state;
  std::uint64_t publish_interval = 1;
  std::optional<std::uint64_t> sync_drift_max;
  bool publish_sparse = true;
  bool publish_new_model = false;
  double learner_price_per_hour = 0;

  std::string provision = "none";
  double provision_alpha = 1.1;
  double paced_step_s = 0;
  double paced_jitter = 0;

  TaskProgramSettings task_program;  ///< keys task_program.NAME
};

/// The configuration that `settings` make; a later one wins. `preset` among them is applied before all others.
/// Errors: kInvalidArgument, which names the key, its value and its range, or the nearest key, choice or preset.
[[nodiscard]] Result<LearnerConfig> make_config(std::span<const Setting> settings);

/// All keys but task_options as rows of a table in Markdown: name, default, values that it takes, meaning.
[[nodiscard]] std::string config_table();

/// As a TOML file that gives the same configuration again.
[[nodiscard]] std::string config_text(const LearnerConfig& config);

/// The loss that it describes. Errors: those of validate(), which make_config() gives, too.
[[nodiscard]] Result<PolicyLossOptions> loss_options(const LearnerConfig& config);

/// What learns is an adapter, and versions are that alone.
[[nodiscard]] bool publishes_adapter(const LearnerConfig& config);
/// The adapter that learns; absent if all weights do. Errors: as loss_options().
[[nodiscard]] Result<std::optional<LoraConfig>> lora_config(const LearnerConfig& config);

/// The most tokens of a rollout: prompt, answers and observations.
[[nodiscard]] std::uint64_t rollout_tokens_max(const LearnerConfig& config);

/// Whether advantages need a value head, and whether the loss or the reward reads the reference model.
[[nodiscard]] bool has_value_head(const LearnerConfig& config);
[[nodiscard]] bool reads_reference(const LearnerConfig& config);

/// Whether `device` is a GPU.
[[nodiscard]] bool uses_cuda(const LearnerConfig& config);

/// The learning rate of the training steps' updates. Errors: those of validate(), which make_config() gives, too.
[[nodiscard]] Result<LearningRateSchedule> learning_rate_schedule(const LearnerConfig& config);

/// What the replay buffer takes of it.
[[nodiscard]] ReplayOptions replay_options(const LearnerConfig& config);

}  // namespace weightcast
