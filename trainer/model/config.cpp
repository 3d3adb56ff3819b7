#include "trainer/model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/settings/nearest_name.h"
#include "patch/snapshot/safetensors.h"
#include "trainer/model/json_fields.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using namespace std::string_view_literals;

enum class Biases {
  kNone,
  kQueryKeyValue,  ///< whatever "attention_bias" says
  kAsConfigured,   ///< "attention_bias": of the output projection, too
};

enum class Window {
  kNone,
  kIfAsked,  ///< "sliding_window" counts with "use_sliding_window"
  kAlways,   ///< "sliding_window" counts, unless it is null
};

/// What one architecture has or reads and another has not: transformers' configuration and modelling files.
struct Family {
  std::string_view architecture;
  std::string_view model_type;
  Biases biases = Biases::kNone;
  bool mlp_bias = false;  ///< reads "mlp_bias"
  bool qk_norm = false;
  bool experts = false;
  Window window = Window::kNone;
  /// Without "num_key_value_heads" there are as many as heads; otherwise it has to be there.
  bool key_value_heads_may_be_missing = false;
  /// What members that are missing stand for. Of a head's size 0 is hidden_size / num_attention_heads.
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 32768;
  std::int64_t sliding_window = 0;
};

/// In the order of Architecture.
constexpr std::array kFamilies{Family{.architecture = "Qwen2ForCausalLM",
                                      .model_type = "qwen2",
                                      .biases = Biases::kQueryKeyValue,
                                      .window = Window::kIfAsked},
                               Family{.architecture = "Qwen3ForCausalLM",
                                      .model_type = "qwen3",
                                      .biases = Biases::kAsConfigured,
                                      .qk_norm = true,
                                      .window = Window::kIfAsked,
                                      .head_dim = 128},
                               Family{.architecture = "Qwen3MoeForCausalLM",
                                      .model_type = "qwen3_moe",
                                      .biases = Biases::kAsConfigured,
                                      .qk_norm = true,
                                      .experts = true,
                                      .window = Window::kIfAsked},
                               Family{.architecture = "LlamaForCausalLM",
                                      .model_type = "llama",
                                      .biases = Biases::kAsConfigured,
                                      .mlp_bias = true,
                                      .key_value_heads_may_be_missing = true,
                                      .max_position_embeddings = 2048},
                               Family{.architecture = "MistralForCausalLM",
                                      .model_type = "mistral",
                                      .window = Window::kAlways,
                                      .max_position_embeddings = 131072,
                                      .sliding_window = 4096}};

template <typename Value>
constexpr auto of_all_families(Value Family::*member) {
  std::array<Value, kFamilies.size()> values{};
  for (std::size_t i = 0; i < kFamilies.size(); ++i) values[i] = kFamilies[i].*member;
  return values;
}
constexpr auto kArchitectures = of_all_families(&Family::architecture);
constexpr auto kModelTypes = of_all_families(&Family::model_type);
constexpr std::array kRopeTypes{"default"sv, "linear"sv, "yarn"sv, "llama3"sv, "dynamic"sv, "longrope"sv};

// Several times what the largest published models have. They keep products of sizes within 64 bits.
constexpr std::int64_t kVocabSizeMax = std::int64_t{1} << 24;
constexpr std::int64_t kWidthMax = std::int64_t{1} << 20;
constexpr std::int64_t kLayersMax = 4096;
constexpr std::int64_t kHeadsMax = 4096;
constexpr std::int64_t kHeadDimMax = 4096;
constexpr std::int64_t kExpertsMax = 4096;
constexpr std::int64_t kPositionsMax = std::int64_t{1} << 31;
constexpr std::int64_t kParametersMax = std::int64_t{1} << 46;

constexpr std::string_view kFile = "config.json";

Error refuse(std::string why) { return fail(Errc::kInvalidArgument, Op::kParse, "config.json: " + std::move(why)); }
Error unsupported(std::string why) { return fail(Errc::kUnsupported, Op::kParse, "config.json: " + std::move(why)); }

/// "architectures" decides. transformers goes by "model_type", which has to agree with it where both are.
Result<Architecture> read_architecture(const JsonFields& fields) {
  std::string type;
  WC_TRY(fields.read("model_type", type));
  const auto* const typed = std::find(kModelTypes.begin(), kModelTypes.end(), type);
  const Json* names = fields.find("architectures");
  if (names == nullptr) {
    if (type.empty()) {
      return refuse(fmt::format("'architectures' is missing; it names one of {}", fmt::join(kArchitectures, ", ")));
    }
    if (typed == kModelTypes.end()) {
      return unsupported("'model_type': " + unknown_name("model_type that this build computes", type, kModelTypes));
    }
    return static_cast<Architecture>(typed - kModelTypes.begin());
  }
  if (!names->is_array() || names->size() != 1 || !names->front().is_string()) {
    return refuse(fmt::format("'architectures' is {}; it is a list of one name", shown_json(*names)));
  }
  const std::string name = names->front().get<std::string>();
  const auto* found = std::find(kArchitectures.begin(), kArchitectures.end(), name);
  if (found == kArchitectures.end()) {
    return unsupported(unknown_name("architecture that this build computes", name, kArchitectures));
  }
  const Family& family = kFamilies[static_cast<std::size_t>(found - kArchitectures.begin())];
  if (!type.empty() && type != family.model_type) {
    return refuse(
        fmt::format("'architectures' is {}, whose 'model_type' is \"{}\", and it says {}; set the one that is "
                    "wrong",
                    name, family.model_type, shown_json(type)));
  }
  return static_cast<Architecture>(found - kArchitectures.begin());
}

/// The default of transformers: 0.1 ln(factor) + 1, or a quotient of two such, as DeepSeek's models say it.
double yarn_attention_factor(double factor, double mscale, double mscale_all_dim) {
  const auto scale = [factor](double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1; };
  return mscale != 0 && mscale_all_dim != 0 ? scale(mscale) / scale(mscale_all_dim) : scale(1);
}

Status read_frequency_factors(const JsonFields& fields, const char* name, std::int64_t head_dim,
                              std::vector<double>& factors) {
  const Json* list = fields.find(name);
  const auto wanted = static_cast<std::size_t>(head_dim / 2);
  if (list == nullptr || !list->is_array() || list->size() != wanted) {
    return refuse(fmt::format("'{}' is {}; it is a list of {} numbers, one per frequency", fields.label(name),
                              list == nullptr ? "missing" : shown_json(*list), wanted));
  }
  for (const Json& factor : *list) {
    const double value = factor.is_number() ? factor.get<double>() : 0;
    if (!(value >= 1e-6 && value <= 1e6)) {
      return refuse(
          fmt::format("'{}' has {}; its numbers lie between 1e-06 and 1e+06", fields.label(name), shown_json(factor)));
    }
    factors.push_back(value);
  }
  return {};
}

/// The positions that a model was pre-trained with stand beside "rope_scaling" in transformers 4, within
/// "rope_parameters" in transformers 5. Where the former says them, they decide the factor, too.
Status read_longrope(const JsonFields& top, const JsonFields& fields, ModelConfig& config) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  RopeConfig& rope = config.rope;
  const bool beside = top.has(kOriginal);
  rope.original_max_position_embeddings = config.max_position_embeddings;
  WC_TRY((beside ? top : fields).read(kOriginal, 2, kPositionsMax, rope.original_max_position_embeddings));
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  rope.factor = static_cast<double>(config.max_position_embeddings) / original;
  if (!beside) WC_TRY(fields.read("factor", 1.0, 1e6, rope.factor));
  rope.attention_factor = rope.factor <= 1 ? 1 : std::sqrt(1 + std::log(rope.factor) / std::log(original));
  WC_TRY(fields.read("attention_factor", 1e-6, 1e6, rope.attention_factor));
  WC_TRY(read_frequency_factors(fields, "short_factor", config.head_dim, rope.short_factor));
  return read_frequency_factors(fields, "long_factor", config.head_dim, rope.long_factor);
}

/// transformers 4 has "rope_theta" beside "rope_scaling", transformers 5 has both in "rope_parameters".
Status read_rope(const Json& json, ModelConfig& config) {
  const JsonFields top(json, kFile);
  RopeConfig& rope = config.rope;
  WC_TRY(top.read("rope_theta", 1.0, 1e18, rope.theta));
  const char* member = top.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json* object = top.find(member);
  if (object == nullptr) return {};
  if (!object->is_object()) return refuse(fmt::format("'{}' is {}, not an object", member, shown_json(*object)));
  const JsonFields fields(*object, kFile, std::string(member) + ".");
  WC_TRY(fields.read("rope_theta", 1.0, 1e18, rope.theta));
  double partial = 1;
  WC_TRY(fields.read("partial_rotary_factor", 0.0, 1.0, partial));
  if (partial != 1)
    return unsupported(fmt::format("'{}' is {}, not 1", fields.label("partial_rotary_factor"), partial));

  std::string type = "default";
  const char* type_member = fields.has("rope_type") ? "rope_type" : "type";
  WC_TRY(fields.read(type_member, type));
  const auto* found = std::find(kRopeTypes.begin(), kRopeTypes.end(), type);
  if (found == kRopeTypes.end()) {
    return unsupported(fmt::format("'{}': {}", fields.label(type_member),
                                   unknown_name("position embedding that this build computes", type, kRopeTypes)));
  }
  rope.type = static_cast<RopeType>(found - kRopeTypes.begin());
  if (rope.type == RopeType::kDefault) return {};
  if (rope.type == RopeType::kLongrope) return read_longrope(top, fields, config);

  if (!fields.has("factor")) return refuse(fmt::format("'{}' is missing", fields.label("factor")));
  WC_TRY(fields.read("factor", 1.0, 1e6, rope.factor));
  rope.original_max_position_embeddings = config.max_position_embeddings;
  if (rope.type == RopeType::kDynamic) return {};  // the configuration's other members have no part in it
  if (rope.type == RopeType::kLlama3 && !fields.has("original_max_position_embeddings")) {
    return refuse(fmt::format("'{}' is missing", fields.label("original_max_position_embeddings")));
  }
  WC_TRY(fields.read("original_max_position_embeddings", 1, kPositionsMax, rope.original_max_position_embeddings));
  WC_TRY(fields.read("beta_fast", 1e-6, 1e6, rope.beta_fast));
  WC_TRY(fields.read("beta_slow", 1e-6, 1e6, rope.beta_slow));
  if (rope.beta_fast < rope.beta_slow) {
    return refuse(fmt::format("'{}' {} is below '{}' {}", fields.label("beta_fast"), rope.beta_fast,
                              fields.label("beta_slow"), rope.beta_slow));
  }
  WC_TRY(fields.read("truncate", rope.truncate));
  WC_TRY(fields.read("low_freq_factor", 1e-6, 1e6, rope.low_freq_factor));
  WC_TRY(fields.read("high_freq_factor", 1e-6, 1e6, rope.high_freq_factor));
  if (rope.type == RopeType::kLlama3 && rope.high_freq_factor <= rope.low_freq_factor) {
    return refuse(fmt::format("'{}' {} is not above '{}' {}", fields.label("high_freq_factor"), rope.high_freq_factor,
                              fields.label("low_freq_factor"), rope.low_freq_factor));
  }
  if (rope.type == RopeType::kYarn) {
    double mscale = 0;
    double mscale_all_dim = 0;
    WC_TRY(fields.read("mscale", 0.0, 1e6, mscale));
    WC_TRY(fields.read("mscale_all_dim", 0.0, 1e6, mscale_all_dim));
    rope.attention_factor = yarn_attention_factor(rope.factor, mscale, mscale_all_dim);
    WC_TRY(fields.read("attention_factor", 1e-6, 1e6, rope.attention_factor));
  }
  return {};
}

/// Members that change the computation in a way that this build does not know.
Status refuse_unsupported(const Json& json) {
  const JsonFields fields(json, kFile);
  std::string activation = "silu";
  WC_TRY(fields.read("hidden_act", activation));
  if (activation != "silu") {
    return unsupported(fmt::format("'hidden_act' is {}, not \"silu\"", shown_json(activation)));
  }
  double dropout = 0;
  WC_TRY(fields.read("attention_dropout", 0.0, 1.0, dropout));
  if (dropout != 0) return unsupported(fmt::format("'attention_dropout' is {}, not 0", dropout));
  double partial = 1;
  WC_TRY(fields.read("partial_rotary_factor", 0.0, 1.0, partial));
  if (partial != 1) return unsupported(fmt::format("'partial_rotary_factor' is {}, not 1", partial));
  if (fields.has("quantization_config")) {
    return unsupported("it has 'quantization_config'; weights are BF16, F16 or F32");
  }
  return {};
}

/// One window for all layers, or none: "layer_types" may not say otherwise.
Status read_window(const Json& json, const Family& family, ModelConfig& config) {
  const JsonFields fields(json, kFile);
  bool asked = family.window == Window::kAlways;
  WC_TRY(fields.read("use_sliding_window", asked));
  if (asked != (family.window == Window::kAlways)) {
    return unsupported(fmt::format("'use_sliding_window' is {}; {} is computed {} it", asked, family.architecture,
                                   asked ? "without" : "with"));
  }
  if (family.window == Window::kAlways && !json.contains("sliding_window"))
    config.sliding_window = family.sliding_window;
  if (family.window == Window::kAlways) {
    WC_TRY(fields.read("sliding_window", 1, kPositionsMax, config.sliding_window));
  } else if (family.window == Window::kNone && fields.has("sliding_window")) {
    return unsupported(
        fmt::format("'sliding_window' is {}; {} attends to all positions before, so leave it out, or "
                    "set it to null",
                    shown_json(*fields.find("sliding_window")), family.architecture));
  }
  const Json* types = fields.find("layer_types");
  if (types == nullptr) return {};
  if (!types->is_array()) return refuse(fmt::format("'layer_types' is {}, not a list", shown_json(*types)));
  const char* const computed = config.sliding_window > 0 ? "sliding_attention" : "full_attention";
  for (const Json& type : *types) {
    if (type != computed) {
      return unsupported(fmt::format("'layer_types' has {}; only \"{}\" is supported where 'sliding_window' is {}",
                                     shown_json(type), computed, config.sliding_window > 0 ? "a number" : "not used"));
    }
  }
  return {};
}

Status read_biases(const JsonFields& fields, const Family& family, ModelConfig& config) {
  bool attention = false;
  bool mlp = false;
  WC_TRY(fields.read("attention_bias", attention));
  WC_TRY(fields.read("mlp_bias", mlp));
  if (attention && family.biases == Biases::kNone) {
    return unsupported(
        fmt::format("'attention_bias' is true; {} has none, only false is supported", family.architecture));
  }
  if (mlp && !family.mlp_bias) {
    return unsupported(fmt::format("'mlp_bias' is true; {} has none, only false is supported", family.architecture));
  }
  config.qkv_bias = attention || family.biases == Biases::kQueryKeyValue;
  config.output_bias = attention && family.biases == Biases::kAsConfigured;
  config.mlp_bias = mlp;
  return {};
}

/// transformers 4 calls their number "num_experts", transformers 5 writes it as "num_local_experts".
Status read_expert_count(const JsonFields& fields, std::int64_t& experts) {
  constexpr const char* kEarlier = "num_experts";
  constexpr const char* kLater = "num_local_experts";
  if (!fields.has(kLater)) return fields.require(kEarlier, 1, kExpertsMax, experts);
  WC_TRY(fields.require(kLater, 1, kExpertsMax, experts));
  std::int64_t earlier = experts;
  WC_TRY(fields.read(kEarlier, 1, kExpertsMax, earlier));
  if (earlier == experts) return {};
  return refuse(fmt::format("'{}' is {}, and '{}' {}; both are the number of experts, so leave one out", kEarlier,
                            earlier, kLater, experts));
}

Result<ExpertsConfig> read_experts(const Json& json, std::int64_t layers) {
  const JsonFields fields(json, kFile);
  ExpertsConfig experts;
  WC_TRY(read_expert_count(fields, experts.experts));
  WC_TRY(fields.require("num_experts_per_tok", 1, experts.experts, experts.experts_per_token));
  WC_TRY(fields.require("moe_intermediate_size", 1, kWidthMax, experts.intermediate_size));
  WC_TRY(fields.read("norm_topk_prob", experts.norm_topk_prob));
  WC_TRY(fields.read("decoder_sparse_step", 1, kLayersMax, experts.decoder_sparse_step));
  if (const Json* dense = fields.find("mlp_only_layers"); dense != nullptr) {
    if (!dense->is_array()) return refuse(fmt::format("'mlp_only_layers' is {}, not a list", shown_json(*dense)));
    // Each layer is looked for in it.
    if (dense->size() > static_cast<std::size_t>(layers)) {
      return refuse(fmt::format("'mlp_only_layers' has {} layers, and there are {}", dense->size(), layers));
    }
    for (const Json& layer : *dense) {
      if (!layer.is_number_integer() || layer.get<std::int64_t>() < 0 || layer.get<std::int64_t>() >= layers) {
        return refuse(fmt::format("'mlp_only_layers' has {}; layers are 0 to {}", shown_json(layer), layers - 1));
      }
      experts.mlp_only_layers.push_back(layer.get<std::int64_t>());
    }
  }
  return experts;
}

void add(std::vector<TensorSpec>& specs, std::string name, std::vector<std::int64_t> shape, TensorSpec::Kind kind) {
  specs.push_back({std::move(name), std::move(shape), kind});
}

void add_projection(std::vector<TensorSpec>& specs, const std::string& name, std::int64_t outputs, std::int64_t inputs,
                    bool bias) {
  add(specs, name + ".weight", {outputs, inputs}, TensorSpec::Kind::kMatrix);
  if (bias) add(specs, name + ".bias", {outputs}, TensorSpec::Kind::kBias);
}

void add_feed_forward(std::vector<TensorSpec>& specs, const std::string& name, std::int64_t hidden,
                      std::int64_t intermediate, bool bias) {
  add_projection(specs, name + ".gate_proj", intermediate, hidden, bias);
  add_projection(specs, name + ".up_proj", intermediate, hidden, bias);
  add_projection(specs, name + ".down_proj", hidden, intermediate, bias);
}

void add_layer(std::vector<TensorSpec>& specs, const ModelConfig& config, std::int64_t layer) {
  const std::string name = fmt::format("model.layers.{}.", layer);
  const std::int64_t hidden = config.hidden_size;
  const std::string attention = name + "self_attn.";
  add_projection(specs, attention + "q_proj", config.query_size(), hidden, config.qkv_bias);
  add_projection(specs, attention + "k_proj", config.key_value_size(), hidden, config.qkv_bias);
  add_projection(specs, attention + "v_proj", config.key_value_size(), hidden, config.qkv_bias);
  add_projection(specs, attention + "o_proj", hidden, config.query_size(), config.output_bias);
  if (config.qk_norm) {
    add(specs, attention + "q_norm.weight", {config.head_dim}, TensorSpec::Kind::kNorm);
    add(specs, attention + "k_norm.weight", {config.head_dim}, TensorSpec::Kind::kNorm);
  }
  if (config.layer_has_experts(layer)) {
    add_projection(specs, name + "mlp.gate", config.experts->experts, hidden, false);
    for (std::int64_t i = 0; i < config.experts->experts; ++i) {
      add_feed_forward(specs, fmt::format("{}mlp.experts.{}", name, i), hidden, config.experts->intermediate_size,
                       false);
    }
  } else {
    add_feed_forward(specs, name + "mlp", hidden, config.intermediate_size, config.mlp_bias);
  }
  add(specs, name + "input_layernorm.weight", {hidden}, TensorSpec::Kind::kNorm);
  add(specs, name + "post_attention_layernorm.weight", {hidden}, TensorSpec::Kind::kNorm);
}

}  // namespace

std::string_view to_string(Architecture architecture) { return kArchitectures[static_cast<std::size_t>(architecture)]; }

bool ModelConfig::layer_has_experts(std::int64_t layer) const {
  return experts && (layer + 1) % experts->decoder_sparse_step == 0 &&
         std::find(experts->mlp_only_layers.begin(), experts->mlp_only_layers.end(), layer) ==
             experts->mlp_only_layers.end();
}

std::int64_t TensorSpec::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

Result<ModelConfig> parse_model_config(std::string_view config_json) {
  const Json json = parse_json(config_json);
  if (!json.is_object()) return refuse("it is no JSON object");
  const JsonFields fields(json, kFile);
  ModelConfig config;
  WC_ASSIGN(config.architecture, read_architecture(fields));
  const Family& family = kFamilies[static_cast<std::size_t>(config.architecture)];
  WC_TRY(refuse_unsupported(json));
  WC_TRY(fields.require("vocab_size", 1, kVocabSizeMax, config.vocab_size));
  WC_TRY(fields.require("hidden_size", 1, kWidthMax, config.hidden_size));
  WC_TRY(fields.require("intermediate_size", 1, kWidthMax, config.intermediate_size));
  WC_TRY(fields.require("num_hidden_layers", 1, kLayersMax, config.num_hidden_layers));
  WC_TRY(fields.require("num_attention_heads", 1, kHeadsMax, config.num_attention_heads));
  if (!json.contains("num_key_value_heads") && !family.key_value_heads_may_be_missing) {
    return refuse("'num_key_value_heads' is missing");
  }
  config.num_key_value_heads = config.num_attention_heads;  // what null means
  WC_TRY(fields.read("num_key_value_heads", 1, config.num_attention_heads, config.num_key_value_heads));
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    return refuse(fmt::format("'num_attention_heads' {} is no multiple of 'num_key_value_heads' {}",
                              config.num_attention_heads, config.num_key_value_heads));
  }
  config.head_dim = family.head_dim;
  if (!fields.has("head_dim") && family.head_dim == 0) {
    if (config.hidden_size % config.num_attention_heads != 0) {
      return refuse(
          fmt::format("'hidden_size' {} is no multiple of 'num_attention_heads' {}, and 'head_dim' is missing",
                      config.hidden_size, config.num_attention_heads));
    }
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  WC_TRY(fields.read("head_dim", 2, kHeadDimMax, config.head_dim));
  if (config.head_dim % 2 != 0) return refuse(fmt::format("the heads' size {} is odd", config.head_dim));
  config.max_position_embeddings = family.max_position_embeddings;
  WC_TRY(fields.read("max_position_embeddings", 1, kPositionsMax, config.max_position_embeddings));
  WC_TRY(fields.read("rms_norm_eps", 0.0, 1.0, config.rms_norm_eps));
  WC_TRY(fields.read("initializer_range", 0.0, 100.0, config.initializer_range));
  WC_TRY(fields.read("tie_word_embeddings", config.tie_word_embeddings));
  WC_TRY(fields.read(fields.has("dtype") ? "dtype" : "torch_dtype", config.dtype));
  WC_TRY(read_rope(json, config));
  WC_TRY(read_window(json, family, config));
  WC_TRY(read_biases(fields, family, config));
  config.qk_norm = family.qk_norm;
  if (family.experts) {
    WC_ASSIGN(config.experts, read_experts(json, config.num_hidden_layers));
  }
  const std::int64_t tensors_per_layer = 16 + (config.experts ? 3 * config.experts->experts : 0);
  if (config.num_hidden_layers * tensors_per_layer > static_cast<std::int64_t>(kTensorsMax)) {
    return refuse(fmt::format("layers and experts make up to {} tensors; at most {} are supported",
                              config.num_hidden_layers * tensors_per_layer, kTensorsMax));
  }
  const double expert_elements = config.experts
                                     ? 3.0 * static_cast<double>(config.experts->experts * config.hidden_size) *
                                           static_cast<double>(config.experts->intermediate_size)
                                     : 0;
  const auto hidden = static_cast<double>(config.hidden_size);
  const double per_layer = hidden * (2.0 * static_cast<double>(config.query_size() + config.key_value_size())) +
                           std::max(3.0 * hidden * static_cast<double>(config.intermediate_size), expert_elements);
  const double upper_bound =
      static_cast<double>(config.num_hidden_layers) * per_layer + 2.0 * hidden * static_cast<double>(config.vocab_size);
  if (upper_bound > static_cast<double>(kParametersMax)) {
    return refuse(fmt::format("the sizes make {:.3g} parameters; at most {:.3g} are supported", upper_bound,
                              static_cast<double>(kParametersMax)));
  }
  return config;
}

std::vector<TensorSpec> tensor_specs(const ModelConfig& config) {
  std::vector<TensorSpec> specs;
  const std::vector<std::int64_t> vocabulary{config.vocab_size, config.hidden_size};
  add(specs, "model.embed_tokens.weight", vocabulary, TensorSpec::Kind::kEmbedding);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) add_layer(specs, config, layer);
  add(specs, "model.norm.weight", {config.hidden_size}, TensorSpec::Kind::kNorm);
  if (!config.tie_word_embeddings) add(specs, "lm_head.weight", vocabulary, TensorSpec::Kind::kMatrix);
  return specs;
}

bool is_rope_buffer(std::string_view tensor_name) { return tensor_name.ends_with(".self_attn.rotary_emb.inv_freq"); }

ModelSize model_size(const ModelConfig& config) {
  ModelSize size;
  const std::int64_t hidden = config.hidden_size;
  for (const TensorSpec& spec : tensor_specs(config)) {
    size.parameters += spec.elements();
    if (spec.kind == TensorSpec::Kind::kMatrix) size.matrix_parameters_active += spec.elements();
  }
  if (config.tie_word_embeddings) size.matrix_parameters_active += config.vocab_size * hidden;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.layer_has_experts(layer)) continue;
    const ExpertsConfig& experts = *config.experts;
    size.matrix_parameters_active -=
        3 * hidden * experts.intermediate_size * (experts.experts - experts.experts_per_token);
  }
  size.flop_per_token = 2 * size.matrix_parameters_active;
  size.flop_per_token_and_position = 4 * config.query_size() * config.num_hidden_layers;
  size.cache_elements_per_position = 2 * config.key_value_size() * config.num_hidden_layers;
  return size;
}

}  // namespace weightcast
