#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace weightcast {

/// config.json of a model of two layers, as transformers writes it: for tests to change and to dump.
inline nlohmann::json tiny_config(const std::string& architecture) {
  nlohmann::json config{{"architectures", {architecture}},
                        {"vocab_size", 48},
                        {"hidden_size", 16},
                        {"intermediate_size", 24},
                        {"num_hidden_layers", 2},
                        {"num_attention_heads", 4},
                        {"num_key_value_heads", 2},
                        {"max_position_embeddings", 64},
                        {"rms_norm_eps", 1e-6},
                        {"rope_theta", 10000.0},
                        {"rope_scaling", nullptr},
                        {"hidden_act", "silu"},
                        {"tie_word_embeddings", false},
                        {"torch_dtype", "float32"},
                        {"transformers_version", "4.51.3"}};
  if (architecture.starts_with("Qwen")) {
    config["use_sliding_window"] = false;
    config["sliding_window"] = 4096;
  }
  if (architecture.starts_with("Qwen3")) {
    config["head_dim"] = 8;
    config["attention_bias"] = false;
  }
  if (architecture == "LlamaForCausalLM") {
    config["model_type"] = "llama";
    config["attention_bias"] = true;
    config["mlp_bias"] = true;
  }
  if (architecture == "MistralForCausalLM") {
    config["model_type"] = "mistral";
    config["head_dim"] = 8;
    config["sliding_window"] = 7;
  }
  if (architecture == "Qwen3MoeForCausalLM") {
    config["num_experts"] = 4;
    config["num_experts_per_tok"] = 2;
    config["moe_intermediate_size"] = 8;
    config["norm_topk_prob"] = true;
    config["decoder_sparse_step"] = 1;
    config["mlp_only_layers"] = nlohmann::json::array();
  }
  return config;
}

}  // namespace weightcast
