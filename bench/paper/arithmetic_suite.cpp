#include "bench/paper/arithmetic_suite.h"

namespace weightcast::bench {

TrainingSuite arithmetic_suite(const char* preset, const char* learning_rate) {
  TrainingSuite suite;
  suite.settings = {{"preset", preset},
                    {"chat_template", "none"},
                    {"task", "arithmetic"},
                    {"task_options.digits_max", "1"},
                    {"init_hidden_size", "64"},
                    {"init_intermediate_size", "256"},
                    {"init_num_hidden_layers", "2"},
                    {"max_prompt_length", "16"},
                    {"max_new_tokens", "4"},
                    {"top_p", "1"},
                    {"sft_learning_rate", "2e-3"},
                    {"learning_rate", learning_rate},
                    {"lr_schedule", "cosine"},
                    {"weight_decay", "0"},
                    {"eval_interval", "5"},
                    {"eval_prompts", "64"},
                    {"eval_samples", "4"}};
  suite.warm_up_steps = 250;
  suite.steps = 40;
  return suite;
}

}  // namespace weightcast::bench
