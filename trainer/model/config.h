#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weightcast {

/// The decoders that this build computes, as config.json's "architectures" names them. How each reads config.json is
/// one row of a table in config.cpp; whoever computes goes by the members of ModelConfig.
enum class Architecture { kQwen2, kQwen3, kQwen3Moe, kLlama, kMistral };

/// "Qwen2ForCausalLM" and so on.
[[nodiscard]] std::string_view to_string(Architecture architecture);

/// How rotary position embeddings are stretched beyond the context that a model was pre-trained with: the "rope_type"
/// of Hugging Face's modeling_rope_utils.py.
enum class RopeType { kDefault, kLinear, kYarn, kLlama3, kDynamic, kLongrope };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  double factor = 1;
  /// Positions that the model was pre-trained with; 0 where the type does not use it.
  std::int64_t original_max_position_embeddings = 0;
  /// yarn: turns over the pre-trained context above which a frequency stays, and below which it is interpolated.
  double beta_fast = 32;
  double beta_slow = 1;
  /// yarn: whether those bounds are rounded to whole dimensions.
  bool truncate = true;
  /// yarn and longrope: what cosines and sines are multiplied with.
  double attention_factor = 1;
  /// llama3: wavelengths longer than original / low are interpolated, those shorter than original / high stay.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  /// longrope: what each frequency is divided by, [head_dim / 2], in sequences of up to
  /// original_max_position_embeddings and in longer ones.
  std::vector<double> short_factor, long_factor;

  /// Whether the frequencies of a sequence that is longer than original_max_position_embeddings depend on its length.
  /// Then its next token changes the keys of those before.
  [[nodiscard]] bool depends_on_length() const { return type == RopeType::kDynamic || type == RopeType::kLongrope; }
};

/// The feed-forward blocks of a mixture of experts. A layer's router takes the `experts_per_token` most likely experts.
struct ExpertsConfig {
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t intermediate_size = 0;
  /// Whether the chosen experts' probabilities are scaled to a sum of 1.
  bool norm_topk_prob = false;
  /// Layer i has experts if i + 1 is a multiple of it and `mlp_only_layers` does not have i.
  std::int64_t decoder_sparse_step = 1;
  std::vector<std::int64_t> mlp_only_layers;
};

/// What config.json says of a model. Names without a comment are config.json's own.
/// Invariant, of one that parse_model_config() returned: every size is at least 1 and within the limits of config.cpp,
/// num_attention_heads is a multiple of num_key_value_heads, head_dim is even.
struct ModelConfig {
  Architecture architecture = Architecture::kQwen3;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 32768;
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  RopeConfig rope;
  bool tie_word_embeddings = false;
  /// Biases of the query, key and value projections, and of the output projection.
  bool qkv_bias = false;
  bool output_bias = false;
  /// Biases of the feed-forward blocks' three projections.
  bool mlp_bias = false;
  /// RMSNorm of each head's query and key.
  bool qk_norm = false;
  /// How many positions a token attends to, its own included; 0: to all before it.
  std::int64_t sliding_window = 0;
  /// "torch_dtype", or "dtype": what the weights are stored in; "" if it is not said.
  std::string dtype;
  std::optional<ExpertsConfig> experts;

  [[nodiscard]] std::int64_t query_size() const { return num_attention_heads * head_dim; }
  [[nodiscard]] std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }
  [[nodiscard]] bool layer_has_experts(std::int64_t layer) const;
  /// The longest sequence whose keys stay as they are while it grows.
  [[nodiscard]] std::int64_t cached_positions_max() const {
    return rope.depends_on_length() ? std::min(max_position_embeddings, rope.original_max_position_embeddings)
                                    : max_position_embeddings;
  }
};

/// Reads the text of a config.json, as transformers 4 and 5 write it. Members that do not change the computation are
/// ignored. Errors: kInvalidArgument, which names the member that is missing, out of range or disagrees with another;
/// kUnsupported, which names an architecture, activation, position embedding, quantisation, window, bias or dropout
/// that this build does not compute.
[[nodiscard]] Result<ModelConfig> parse_model_config(std::string_view config_json);

/// A tensor that a model has.
struct TensorSpec {
  enum class Kind { kMatrix, kEmbedding, kBias, kNorm };

  /// As in Hugging Face's safetensors: "model.layers.0.self_attn.q_proj.weight".
  std::string name;
  /// Matrices are [outputs, inputs].
  std::vector<std::int64_t> shape;
  Kind kind = Kind::kMatrix;

  [[nodiscard]] std::int64_t elements() const;
};

/// Every tensor of the model, in the order in which transformers lists its parameters. A tied head is not among them.
[[nodiscard]] std::vector<TensorSpec> tensor_specs(const ModelConfig& config);

/// Whether a file of weights may have a tensor of this name that is no parameter, and that transformers does not load:
/// the frequencies that older releases of it stored with Llama models ("...self_attn.rotary_emb.inv_freq").
[[nodiscard]] bool is_rope_buffer(std::string_view tensor_name);

struct ModelSize {
  std::int64_t parameters = 0;
  /// Those that one token is multiplied with: of experts, the chosen ones. The embedding counts where it is the head.
  std::int64_t matrix_parameters_active = 0;
  /// Floating-point operations of the forward pass of one token, 2 per active matrix parameter. The backward pass takes
  /// twice as many.
  std::int64_t flop_per_token = 0;
  /// What attention adds to that for each position that the token attends to.
  std::int64_t flop_per_token_and_position = 0;
  /// Keys and values of one position, in elements.
  std::int64_t cache_elements_per_position = 0;
};

[[nodiscard]] ModelSize model_size(const ModelConfig& config);

}  // namespace weightcast
