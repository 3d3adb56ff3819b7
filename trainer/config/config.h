#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings/endpoint.h"
#include "base/settings/operator_settings.h"
#include "base/settings/settings.h"
#include "trainer/loss/advantages.h"
#include "trainer/loss/policy_loss_options.h"
#include "trainer/model/lora_config.h"
#include "trainer/optimiser/schedule.h"
#include "trainer/replay/replay_options.h"
#include "trainer/tasks/program/program_settings.h"
#include "trainer/tasks/registry.h"

namespace weightcast {

/// Of the weights that are trained with.
enum class WeightDtype { kFloat32, kBfloat16 };
constexpr Words<2> words_of(WeightDtype) { return {"float32", "bfloat16"}; }
/// How messages become text.
enum class ChatTemplate { kNone, kQwen };
constexpr Words<2> words_of(ChatTemplate) { return {"none", "qwen"}; }
enum class RolloutsFrom { kGenerator, kFiles, kHttp };
constexpr Words<3> words_of(RolloutsFrom) { return {"generator", "files", "http"}; }
enum class BehaviourLogprobs { kGiven, kRecompute };
constexpr Words<2> words_of(BehaviourLogprobs) { return {"given", "recompute"}; }
enum class LoraPublish { kMerged, kAdapter };
constexpr Words<2> words_of(LoraPublish) { return {"merged", "adapter"}; }
enum class AdvantageEstimator { kGrpo, kGae };
constexpr Words<2> words_of(AdvantageEstimator) { return {"grpo", "gae"}; }
enum class Provision { kNone, kCost, kRandom };
constexpr Words<3> words_of(Provision) { return {"none", "cost", "random"}; }

/// What `weightcast-train run` reads. Names are those of keys in configuration files; docs/SETTINGS.md lists them.
/// Versions, publish_interval, max_staleness and async_generation_ratio count training steps.
struct LearnerConfig : ReplayOptions, EpisodeSettings, PolicyLossOptions {
  LearnerConfig();

  std::string preset;
  std::string output_dir;
  std::uint64_t threads = 1;
  WeightDtype dtype = WeightDtype::kFloat32;
  std::string device = "cpu";
  bool tf32 = false;

  std::string task_data;

  std::string model;
  std::uint64_t init_hidden_size = 128;
  std::uint64_t init_intermediate_size = 512;
  std::uint64_t init_num_hidden_layers = 4;
  std::uint64_t init_num_attention_heads = 4;
  std::uint64_t init_num_key_value_heads = 2;
  ChatTemplate chat_template = ChatTemplate::kNone;

  RolloutsFrom rollout_source = RolloutsFrom::kGenerator;
  std::vector<std::string> rollout_files;
  Endpoint rollout_listen{"127.0.0.1", 7600};
  std::string rollout_keys;
  bool rollout_insecure = false;
  BehaviourLogprobs behaviour_logprobs = BehaviourLogprobs::kGiven;
  std::string generator_lag = "0";  ///< GeneratorLags
  std::uint64_t generator_batch_size = 256;
  std::uint64_t max_sequence_length = 0;
  std::uint64_t reward_threads = 4;
  double reward_time_max = 10;

  std::uint64_t total_training_steps = 100;

  std::uint64_t lora_rank = 0;
  double lora_alpha = 16;
  double lora_dropout = 0;
  std::vector<std::string> lora_target_modules{"all-linear"};
  LoraPublish lora_publish = LoraPublish::kMerged;

  std::uint64_t world_size = 1;
  std::uint64_t rank = 0;
  std::string rendezvous;

  std::uint64_t updates_per_step = 2;
  std::uint64_t ppo_epochs = 1;
  std::uint64_t micro_batch_tokens = 8192;
  bool activation_checkpointing = false;
  double learning_rate = 1e-6;
  LearningRateDecay lr_schedule = LearningRateDecay::kConstant;
  std::uint64_t lr_warmup_updates = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double weight_decay = 0.01;
  double max_grad_norm = 1;
  bool stochastic_rounding = false;

  AdvantageEstimator advantage_estimator = AdvantageEstimator::kGrpo;
  AdvantageNorm advantage_norm = AdvantageNorm::kStd;
  double gamma = 1;
  double gae_lambda = 1;
  double value_loss_coef = 0.5;
  double value_clip_range = 0.5;
  double value_learning_rate = 1e-5;
  double kl_reward_coef = 0;
  KlType kl_reward_type = KlType::kK1;

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
  std::optional<std::uint64_t> sync_drift_max;
  bool publish_sparse = true;
  bool publish_new_model = false;
  double learner_price_per_hour = 0;

  Provision provision = Provision::kNone;
  double provision_alpha = 1.1;
  double paced_step_s = 0;
  double paced_jitter = 0;

  TaskProgramSettings task_program;  ///< keys task_program.NAME
  OperatorSettings operators;
};

/// The configuration that `settings` make; a later one wins. `preset` among them is applied before all others.
/// Errors: kInvalidArgument, which names the key, its value and its range, or the nearest key, choice or preset.
[[nodiscard]] Result<LearnerConfig> make_config(std::span<const Setting> settings);

/// The one description of the keys.
[[nodiscard]] std::vector<SettingField> config_fields(LearnerConfig& config);

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
