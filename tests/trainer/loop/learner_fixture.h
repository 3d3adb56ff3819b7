#pragma once

#include <string>
#include <vector>

#include "tests/patch/temp_dir.h"
#include "trainer/config/config.h"

namespace weightcast {

/// Settings of a run that takes a second: a model of some 30,000 parameters, sums of one digit.
inline std::vector<Setting> tiny_run(const std::string& output_dir) {
  return {{"output_dir", output_dir},
          {"seed", "3"},
          {"init_hidden_size", "32"},
          {"init_intermediate_size", "64"},
          {"init_num_hidden_layers", "2"},
          {"init_num_attention_heads", "2"},
          {"init_num_key_value_heads", "1"},
          {"task_options.digits_max", "1"},
          {"max_new_tokens", "4"},
          {"rollout_batch_size", "16"},
          {"group_size", "4"},
          {"learning_rate", "1e-3"},
          {"sft_steps", "4"},
          {"sft_batch_size", "8"},
          {"entropy_coeff", "0.01"},  // so that every step has a gradient, whatever the rewards
          {"total_training_steps", "6"}};
}

inline std::vector<Setting> with(std::vector<Setting> settings, const std::vector<Setting>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

}  // namespace weightcast
