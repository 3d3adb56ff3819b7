#include "trainer/config/presets.h"

#include <algorithm>

namespace weightcast {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"arithmetic",
       "sums and differences of two digits by a model of 140,000 parameters, from scratch in minutes on one core",
       {{"task", "arithmetic"},
        {"task_options.digits_max", "1"},
        {"init_hidden_size", "64"},
        {"init_intermediate_size", "256"},
        {"init_num_hidden_layers", "2"},
        {"max_new_tokens", "4"},
        {"sft_steps", "400"},
        {"sft_learning_rate", "2e-3"},
        {"rollout_batch_size", "512"},
        {"group_size", "8"},
        {"temperature", "2"},
        {"updates_per_step", "4"},
        {"total_training_steps", "120"},
        {"advantage_norm", "none"},
        {"clip_ratio_high", "0.28"},
        {"learning_rate", "1e-3"},
        {"lr_schedule", "linear"},
        {"weight_decay", "0"}}},
      {"echo2",
       "ECHO-2 (arXiv 2602.02192): 128 rollouts, n = 16, two updates a step, publication every S - 1 steps",
       {{"chat_template", "qwen"},
        {"max_prompt_length", "1024"},
        {"max_new_tokens", "8192"},
        {"rollout_batch_size", "128"},
        {"group_size", "16"},
        {"temperature", "1"},
        {"top_p", "0.95"},
        {"updates_per_step", "2"},
        {"pg_variant", "ppo"},
        {"loss_agg_mode", "seq-mean-token-mean"},
        {"tis_cap", "2"},
        {"max_staleness", "3"},
        {"publish_interval", "2"}}},
      {"sparse_patches",
       "RL with sparse patches: 32 prompts of 16 rollouts, no KL, publication at each step",
       {{"chat_template", "qwen"},
        {"max_prompt_length", "1024"},
        {"max_new_tokens", "1024"},
        {"rollout_batch_size", "512"},
        {"group_size", "16"},
        {"learning_rate", "3e-6"},
        {"lr_schedule", "cosine"},
        {"clip_ratio_low", "0.2"},
        {"clip_ratio_high", "0.28"},
        {"kl_loss_coef", "0"},
        {"max_staleness", "11"},
        {"publish_interval", "1"}}},
      {"sokoban",
       "6 levels of 16 rollouts, of up to 10 turns",
       {{"turns_max", "10"},
        {"chat_template", "qwen"},
        {"max_prompt_length", "1024"},
        {"max_new_tokens", "1024"},
        {"task", "sokoban"},
        {"rollout_batch_size", "96"},
        {"group_size", "16"},
        {"learning_rate", "1e-6"},
        {"kl_loss_coef", "0.001"}}},
      {"math",
       "256 problems of 8 rollouts",
       {{"chat_template", "qwen"},
        {"max_prompt_length", "1024"},
        {"max_new_tokens", "1024"},
        {"task", "gsm8k"},
        {"rollout_batch_size", "2048"},
        {"group_size", "8"},
        {"learning_rate", "5e-7"},
        {"kl_loss_coef", "0"}}},
      {"knights_and_knaves",
       "64 puzzles of 8 rollouts, with an adapter of rank 64",
       {{"chat_template", "qwen"},
        {"max_prompt_length", "1024"},
        {"max_new_tokens", "1024"},
        {"task", "knights_and_knaves"},
        {"rollout_batch_size", "512"},
        {"group_size", "8"},
        {"lora_rank", "64"},
        {"lora_alpha", "32"},
        {"learning_rate", "1e-6"},
        {"kl_loss_coef", "0.001"}}},
      // A.1 gives all but the ratio, which the paper varies, and the updates of a step.
      {"roll_flash",
       "ROLL Flash (arXiv 2510.11345, A.1), RLVR: 256 problems of 16 rollouts, answers of up to 30720 tokens",
       {{"seed", "42"},
        {"chat_template", "qwen"},
        {"task", "gsm8k"},
        {"max_prompt_length", "2048"},
        {"max_new_tokens", "30720"},
        {"temperature", "1"},
        {"top_p", "1"},
        {"rollout_batch_size", "4096"},
        {"group_size", "16"},
        {"max_staleness", "unlimited"},
        {"async_generation_ratio", "1"},
        {"advantage_norm", "std"},
        {"gamma", "1"},
        {"gae_lambda", "1"},
        {"pg_variant", "ppo"},
        {"tis_cap", "5"},
        {"learning_rate", "1e-6"},
        {"lr_warmup_updates", "20"},
        {"weight_decay", "0"}}},
      // Turns and answers are those of ALFWorld. The longest prompt is RLVR's: A.2 gives the sequence alone.
      {"roll_flash_agentic",
       "ROLL Flash (A.2), agentic: 8 initial states of 16 episodes, 9 of 17 under way, of up to 30 turns and 32768 "
       "tokens, ratio 1; with workers",
       {{"rollout_source", "http"},
        {"chat_template", "qwen"},
        {"task", "sokoban"},
        {"turns_max", "30"},
        {"max_prompt_length", "2048"},
        {"max_new_tokens", "4096"},
        {"max_sequence_length", "32768"},
        {"rollout_batch_size", "128"},
        {"group_size", "16"},
        {"num_env_groups", "9"},
        {"group_size_redundancy", "1"},
        {"max_staleness", "unlimited"},
        {"async_generation_ratio", "1"},
        {"eval_prompts", "128"},
        {"eval_samples", "1"}}},
  };
  return all;
}

std::span<const std::string_view> preset_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const Preset& preset : presets()) all.push_back(preset.name);
    return all;
  }();
  return names;
}

std::span<const Setting> preset_settings(std::string_view name) {
  const auto found = std::ranges::find(presets(), name, &Preset::name);
  return found == presets().end() ? std::span<const Setting>() : found->settings;
}

}  // namespace weightcast
