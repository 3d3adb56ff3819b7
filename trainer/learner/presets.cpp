#include "trainer/learner/presets.h"

#include <algorithm>

#include "base/nearest_name.h"

namespace weightcast {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"arithmetic",
       "sums of two digits by a model of 100,000 parameters, from scratch in minutes on one core",
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
        {"max_new_tokens", "1024"},
        {"rollout_batch_size", "128"},
        {"group_size", "16"},
        {"temperature", "1"},
        {"top_p", "0.95"},
        {"updates_per_step", "2"},
        {"pg_variant", "ppo"},
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
  };
  return all;
}

Result<std::vector<std::pair<std::string, std::string>>> preset_settings(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset.settings;
    names.push_back(preset.name);
  }
  if (name.starts_with("roll_flash")) {
    return fail(Errc::kUnsupported, Op::kConfigure,
                "preset 'roll_flash': the numbers of ROLL Flash's appendix are not known here; set what the method has: "
                "async_generation_ratio, max_staleness unlimited, and one of its pg_variants (ppo, decoupled_ppo, tis, "
                "cispo, topr, weighted_topr)");
  }
  return fail(Errc::kInvalidArgument, Op::kConfigure, unknown_name("preset", name, names));
}

}  // namespace weightcast
