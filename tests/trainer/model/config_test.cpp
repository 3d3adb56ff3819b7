#include "trainer/model/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/trainer/model/tiny_configs.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kQwen2 = "Qwen2ForCausalLM";
constexpr const char* kQwen3 = "Qwen3ForCausalLM";
constexpr const char* kQwen3Moe = "Qwen3MoeForCausalLM";
constexpr const char* kLlama = "LlamaForCausalLM";
constexpr const char* kMistral = "MistralForCausalLM";

Result<ModelConfig> parse(const Json& json) { return parse_model_config(json.dump()); }

ModelConfig taken(const Json& json) {
  const Result<ModelConfig> config = parse(json);
  EXPECT_TRUE(config.has_value()) << config.error().message();
  return config.value();
}

void expect_refused(const Json& json, Errc code, const std::string& words) {
  const Result<ModelConfig> config = parse(json);
  ASSERT_FALSE(config.has_value()) << json.dump();
  EXPECT_EQ(config.error().code, code) << config.error().detail;
  EXPECT_THAT(config.error().detail, HasSubstr(words));
}

TEST(ModelConfig, ReadsEachArchitecture) {
  const ModelConfig qwen2 = taken(tiny_config(kQwen2));
  EXPECT_EQ(qwen2.head_dim, 4);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias);
  EXPECT_FALSE(qwen2.qk_norm);
  EXPECT_EQ(qwen2.dtype, "float32");

  const ModelConfig qwen3 = taken(tiny_config(kQwen3));
  EXPECT_EQ(qwen3.head_dim, 8);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_TRUE(qwen3.qk_norm);

  const ModelConfig experts = taken(tiny_config(kQwen3Moe));
  EXPECT_EQ(experts.experts->experts, 4);
  EXPECT_TRUE(experts.experts->norm_topk_prob);
  EXPECT_TRUE(experts.layer_has_experts(1));

  const ModelConfig llama = taken(tiny_config(kLlama));
  EXPECT_EQ(llama.head_dim, 4);
  EXPECT_TRUE(llama.qkv_bias && llama.output_bias && llama.mlp_bias);
  EXPECT_FALSE(llama.qk_norm);
  EXPECT_EQ(llama.sliding_window, 0);

  const ModelConfig mistral = taken(tiny_config(kMistral));
  EXPECT_EQ(mistral.head_dim, 8);
  EXPECT_FALSE(mistral.qkv_bias || mistral.output_bias || mistral.mlp_bias || mistral.qk_norm);
  EXPECT_EQ(mistral.sliding_window, 7);
}

// The config.json of models as they were published, but for members that the computation does not use.
TEST(ModelConfig, ReadsPublishedModels) {
  const Json llama2{{"architectures", {kLlama}},
                    {"model_type", "llama"},
                    {"hidden_act", "silu"},
                    {"hidden_size", 4096},
                    {"intermediate_size", 11008},
                    {"num_hidden_layers", 32},
                    {"max_position_embeddings", 4096},
                    {"num_attention_heads", 32},
                    {"pretraining_tp", 1},
                    {"rms_norm_eps", 1e-5},
                    {"rope_scaling", nullptr},
                    {"tie_word_embeddings", false},
                    {"torch_dtype", "float16"},
                    {"vocab_size", 32000}};
  ModelConfig config = taken(llama2);
  EXPECT_EQ(config.num_key_value_heads, 32);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(model_size(config).parameters, 6'738'415'616);  // "7B"

  Json llama3 = llama2;
  llama3.update({{"vocab_size", 128256},
                 {"hidden_size", 2048},
                 {"intermediate_size", 8192},
                 {"num_hidden_layers", 16},
                 {"num_key_value_heads", 8},
                 {"head_dim", 64},
                 {"attention_bias", false},
                 {"mlp_bias", false},
                 {"max_position_embeddings", 131072},
                 {"rope_theta", 500000.0},
                 {"rope_scaling",
                  {{"rope_type", "llama3"},
                   {"factor", 32.0},
                   {"low_freq_factor", 1.0},
                   {"high_freq_factor", 4.0},
                   {"original_max_position_embeddings", 8192}}},
                 {"tie_word_embeddings", true}});
  config = taken(llama3);
  EXPECT_EQ(config.rope.type, RopeType::kLlama3);
  EXPECT_EQ(model_size(config).parameters, 1'235'814'400);  // Llama 3.2, "1B (1.23B)"

  Json mistral = llama2;
  mistral.erase("pretraining_tp");
  mistral.update({{"architectures", {kMistral}},
                  {"model_type", "mistral"},
                  {"intermediate_size", 14336},
                  {"max_position_embeddings", 32768},
                  {"num_key_value_heads", 8},
                  {"sliding_window", 4096}});
  config = taken(mistral);
  EXPECT_EQ(config.sliding_window, 4096);  // v0.1
  EXPECT_EQ(model_size(config).parameters, 7'241'732'096);
  mistral.update({{"sliding_window", nullptr}, {"vocab_size", 32768}, {"rope_theta", 1e6}});
  config = taken(mistral);
  EXPECT_EQ(config.sliding_window, 0);  // v0.3
  EXPECT_EQ(model_size(config).parameters, 7'248'023'552);
}

TEST(ModelConfig, TakesWhatIsMissingAsTransformersDoes) {
  Json json = tiny_config(kLlama);
  for (const char* name : {"num_key_value_heads", "attention_bias", "mlp_bias", "max_position_embeddings"}) {
    json.erase(name);
  }
  ModelConfig config = taken(json);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_FALSE(config.qkv_bias || config.output_bias || config.mlp_bias);
  EXPECT_EQ(config.max_position_embeddings, 2048);

  json = tiny_config(kMistral);
  json.erase("sliding_window");
  json.erase("max_position_embeddings");
  config = taken(json);
  EXPECT_EQ(config.sliding_window, 4096);
  EXPECT_EQ(config.max_position_embeddings, 131072);
}

TEST(ModelConfig, GoesByTheModelTypeWhereNoArchitectureIsNamed) {
  Json json = tiny_config(kMistral);
  json.erase("architectures");
  ModelConfig config = taken(json);
  EXPECT_EQ(config.architecture, Architecture::kMistral);
  json["model_type"] = "mixtral";
  expect_refused(json, Errc::kUnsupported,
                 "'model_type': 'mixtral' is no model_type that this build computes; the nearest "
                 "is 'mistral' (all: qwen2, qwen3, qwen3_moe, llama, mistral)");
  json["architectures"] = {kMistral};
  expect_refused(json, Errc::kInvalidArgument,
                 "'architectures' is MistralForCausalLM, whose 'model_type' is \"mistral\", and it says \"mixtral\"");
}

TEST(ModelConfig, RefusesWindowsAndBiasesThatAFamilyDoesNotHave) {
  const auto with = [](const char* architecture, const char* name, const Json& value) {
    Json json = tiny_config(architecture);
    json[name] = value;
    return json;
  };
  expect_refused(with(kLlama, "sliding_window", 4096), Errc::kUnsupported,
                 "'sliding_window' is 4096; LlamaForCausalLM attends to all positions before");
  EXPECT_TRUE(parse(with(kLlama, "sliding_window", nullptr)).has_value());
  expect_refused(with(kLlama, "use_sliding_window", true), Errc::kUnsupported,
                 "'use_sliding_window' is true; LlamaForCausalLM is computed without it");
  expect_refused(with(kMistral, "use_sliding_window", false), Errc::kUnsupported,
                 "'use_sliding_window' is false; MistralForCausalLM is computed with it");
  expect_refused(with(kMistral, "sliding_window", 0), Errc::kInvalidArgument, "'sliding_window'");
  expect_refused(with(kMistral, "sliding_window", "all"), Errc::kInvalidArgument, "'sliding_window'");
  EXPECT_TRUE(parse(with(kMistral, "layer_types", {"sliding_attention", "sliding_attention"})).has_value());
  expect_refused(
      with(kMistral, "layer_types", {"sliding_attention", "full_attention"}), Errc::kUnsupported,
      "'layer_types' has \"full_attention\"; only \"sliding_attention\" is supported where 'sliding_window' is "
      "a number");
  expect_refused(with(kMistral, "attention_bias", true), Errc::kUnsupported,
                 "'attention_bias' is true; MistralForCausalLM has none, only false is supported");
  expect_refused(with(kMistral, "mlp_bias", true), Errc::kUnsupported, "'mlp_bias' is true");
  expect_refused(with(kQwen3, "mlp_bias", true), Errc::kUnsupported, "'mlp_bias' is true; Qwen3ForCausalLM has none");
  expect_refused(with(kLlama, "mlp_bias", 1), Errc::kInvalidArgument, "'mlp_bias'");
}

TEST(ModelConfig, TakesTheDefaultsOfTransformers) {
  Json json = tiny_config(kQwen3);
  for (const char* name :
       {"head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta", "tie_word_embeddings"}) {
    json.erase(name);
  }
  json["num_key_value_heads"] = nullptr;
  const ModelConfig config = taken(json);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.max_position_embeddings, 32768);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope.theta, 10000);
  EXPECT_FALSE(config.tie_word_embeddings);
}

TEST(ModelConfig, ReadsWhatTransformers5Writes) {
  Json json = tiny_config(kQwen3);
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json.erase("torch_dtype");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  json["dtype"] = "bfloat16";
  json["layer_types"] = {"full_attention", "full_attention"};
  const ModelConfig config = taken(json);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.dtype, "bfloat16");
}

/// The members that transformers 5.8 writes of a Qwen3-MoE, with the smallest sizes. In memory transformers 5 has one
/// tensor for all experts of a layer. save_pretrained() takes it apart again: of this configuration 5.23.0 wrote the 62
/// tensors that transformers 4 has, of the same shapes. (With save_original_format=False it wrote 36:
/// `mlp.experts.gate_up_proj` of [5, 16, 16] and `mlp.experts.down_proj` of [5, 16, 8], which we refuse.)
TEST(ModelConfig, ReadsTheExpertsThatTransformers5Writes) {
  std::ifstream file(WEIGHTCAST_MODEL_DATA "/qwen3_moe_transformers5/config.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Result<ModelConfig> config = parse_model_config(text);
  ASSERT_TRUE(config.has_value()) << config.error().detail;
  ASSERT_TRUE(config->experts.has_value());
  EXPECT_EQ(config->experts->experts, 5);
  EXPECT_EQ(config->experts->experts_per_token, 2);
  EXPECT_EQ(config->experts->intermediate_size, 8);
  EXPECT_EQ(config->rope.theta, 1e6);
  EXPECT_EQ(config->dtype, "bfloat16");
  std::size_t experts = 0;
  for (const TensorSpec& spec : tensor_specs(*config)) {
    experts += spec.name.find(".mlp.experts.") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(experts, 2u * 5 * 3) << "layer 0 has none";
  EXPECT_EQ(tensor_specs(*config).size(), 62u);
}

TEST(ModelConfig, TakesEitherNameOfTheNumberOfExperts) {
  Json json = tiny_config(kQwen3Moe);
  json["num_local_experts"] = 4;
  EXPECT_TRUE(parse(json).has_value()) << "they agree";
  json["num_local_experts"] = 3;
  expect_refused(json, Errc::kInvalidArgument, "'num_experts' is 4, and 'num_local_experts' 3");
  json["num_experts"] = nullptr;
  const ModelConfig config = taken(json);
  EXPECT_EQ(config.experts->experts, 3);
  json["num_local_experts"] = 0;
  expect_refused(json, Errc::kInvalidArgument, "'num_local_experts'");
}

TEST(ModelConfig, ReadsPositionEmbeddings) {
  Json json = tiny_config(kQwen3);
  json["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  ModelConfig config = taken(json);
  EXPECT_EQ(config.rope.type, RopeType::kYarn);
  EXPECT_EQ(config.rope.original_max_position_embeddings, 32);
  EXPECT_NEAR(config.rope.attention_factor, 1.138629436, 1e-9);  // 0.1 ln 4 + 1

  json["rope_scaling"]["attention_factor"] = 1.25;
  config = taken(json);
  EXPECT_EQ(config.rope.attention_factor, 1.25);
}

TEST(ModelConfig, RefusesUnknownArchitecturesByName) {
  Json json = tiny_config(kQwen3);
  json["architectures"] = {"Qwen3NextForCausalLM"};
  expect_refused(json, Errc::kUnsupported, "'Qwen3NextForCausalLM' is no architecture");
  expect_refused(json, Errc::kUnsupported, "the nearest is 'Qwen3ForCausalLM'");
  json["architectures"] = {"LlamaForSequenceClassification"};
  expect_refused(json, Errc::kUnsupported, "'LlamaForSequenceClassification'");
  json["architectures"] = Json::array();
  expect_refused(json, Errc::kInvalidArgument, "'architectures'");
  json.erase("architectures");
  expect_refused(json, Errc::kInvalidArgument, "'architectures' is missing");
}

TEST(ModelConfig, RefusesWhatItDoesNotCompute) {
  const auto with = [](const char* name, const Json& value) {
    Json json = tiny_config(kQwen3);
    json[name] = value;
    return json;
  };
  expect_refused(with("hidden_act", "gelu"), Errc::kUnsupported, "'hidden_act' is \"gelu\"");
  expect_refused(with("use_sliding_window", true), Errc::kUnsupported, "'use_sliding_window'");
  expect_refused(with("layer_types", {"sliding_attention"}), Errc::kUnsupported, "sliding_attention");
  expect_refused(with("attention_dropout", 0.1), Errc::kUnsupported, "'attention_dropout'");
  expect_refused(with("quantization_config", Json::object()), Errc::kUnsupported, "'quantization_config'");
  expect_refused(with("partial_rotary_factor", 0.5), Errc::kUnsupported, "'partial_rotary_factor'");
  expect_refused(with("rope_scaling", {{"rope_type", "yarm"}, {"factor", 2}}), Errc::kUnsupported,
                 "the nearest is 'yarn'");
}

// Each field of the config wrong in each way: absent, of another type, below its range, above it.
TEST(ModelConfig, NamesTheFieldThatIsWrong) {
  const Json absent(Json::value_t::discarded);
  const std::vector<std::pair<std::string, std::vector<Json>>> fields{
      {"vocab_size", {absent, 0, 1e300, "48", nullptr}},
      {"hidden_size", {absent, -1, 16.5, 1 << 21}},
      {"intermediate_size", {absent, 0, true}},
      {"num_hidden_layers", {absent, 0, 100000}},
      {"num_attention_heads", {absent, 0, Json::array()}},
      {"num_key_value_heads", {absent, 3, 8, 0}},
      {"head_dim", {7, 0}},
      {"max_position_embeddings", {0}},
      {"rms_norm_eps", {-1e-6, "small"}},
      {"initializer_range", {-1}},
      {"rope_theta", {0, "1e6"}},
      {"tie_word_embeddings", {1}},
      {"attention_bias", {"no"}},
      {"torch_dtype", {16}},
      {"rope_scaling", {2}},
      {"layer_types", {1}},
      {"num_experts", {absent, 0, 100000}},
      {"num_experts_per_tok", {absent, 5}},
      {"moe_intermediate_size", {absent, 0}},
      {"norm_topk_prob", {"yes"}},
      {"decoder_sparse_step", {0}},
      {"mlp_only_layers", {Json::array({2}), Json::array({-1}), 1}}};
  for (const auto& [name, values] : fields) {
    for (const Json& value : values) {
      Json json = tiny_config(kQwen3Moe);
      if (value.is_discarded()) {
        json.erase(name);
      } else {
        json[name] = value;
      }
      expect_refused(json, Errc::kInvalidArgument, name == "head_dim" && value == 7 ? "odd" : name);
    }
  }
}

TEST(ModelConfig, NamesTheFieldOfThePositionEmbeddingThatIsWrong) {
  const Json good{{"rope_type", "llama3"},
                  {"factor", 8.0},
                  {"original_max_position_embeddings", 32},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 4.0}};
  Json json = tiny_config(kQwen3);
  json["rope_scaling"] = good;
  ASSERT_TRUE(parse(json).has_value());
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, Json>>{{"factor", 0.5},
                                                 {"factor", nullptr},
                                                 {"original_max_position_embeddings", 0},
                                                 {"original_max_position_embeddings", nullptr},
                                                 {"low_freq_factor", 5.0},
                                                 {"high_freq_factor", "4"},
                                                 {"rope_type", 3},
                                                 {"rope_theta", 0.5},
                                                 {"truncate", 1},
                                                 {"beta_fast", 0.5},
                                                 {"beta_slow", 0}}) {
    json["rope_scaling"] = good;
    json["rope_scaling"][name] = value;
    expect_refused(json, Errc::kInvalidArgument, std::string("rope_scaling.") + name);
  }
}

TEST(ModelConfig, ReadsPositionEmbeddingsThatDependOnTheLength) {
  Json json = tiny_config(kQwen3);  // heads of 8, 64 positions
  json["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  ModelConfig config = taken(json);
  EXPECT_EQ(config.rope.original_max_position_embeddings, 64);
  EXPECT_EQ(config.cached_positions_max(), 64);

  const Json good{{"rope_type", "longrope"}, {"short_factor", {1.0, 1.5, 2, 3}}, {"long_factor", {1, 2, 4, 8}}};
  json["rope_scaling"] = good;
  json["original_max_position_embeddings"] = 16;
  config = taken(json);
  EXPECT_EQ(config.rope.factor, 4);
  EXPECT_NEAR(config.rope.attention_factor, std::sqrt(1 + std::log(4) / std::log(16)), 1e-12);
  EXPECT_EQ(config.cached_positions_max(), 16);
  for (const auto& [name, value] : std::vector<std::pair<const char*, Json>>{{"short_factor", nullptr},
                                                                             {"short_factor", {1, 2, 3}},
                                                                             {"long_factor", {1, 2, 3, 0}},
                                                                             {"long_factor", {1, 2, 3, "4"}},
                                                                             {"long_factor", 4},
                                                                             {"attention_factor", 0}}) {
    json["rope_scaling"] = good;
    json["rope_scaling"][name] = value;
    expect_refused(json, Errc::kInvalidArgument, std::string("rope_scaling.") + name);
  }
}

TEST(ModelConfig, RefusesWhatIsNoObject) {
  for (const char* text : {"", "[]", "{", "3", "null"}) {
    const Result<ModelConfig> config = parse_model_config(text);
    ASSERT_FALSE(config.has_value()) << text;
    EXPECT_EQ(config.error().code, Errc::kInvalidArgument);
  }
}

TEST(ModelConfig, SurvivesValuesThatAreNestedDeeply) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_FALSE(parse_model_config("{\"architectures\": " + deep + ", \"hidden_size\": " + deep + "}").has_value());
}

TEST(ModelConfig, RefusesMoreParametersThanAnyModelHas) {
  Json json = tiny_config(kQwen3);
  for (const char* name : {"hidden_size", "intermediate_size"}) json[name] = 1 << 20;
  json["num_hidden_layers"] = 4096;
  expect_refused(json, Errc::kInvalidArgument, "parameters");
}

TEST(ModelConfig, RefusesMoreTensorsThanAFileMayHave) {
  Json json = tiny_config(kQwen3Moe);
  json["num_hidden_layers"] = 4096;
  json["num_experts"] = 4096;
  expect_refused(json, Errc::kInvalidArgument, "tensors; at most 1000000");
}

TEST(ModelTensors, AreTransformersNamesInItsOrder) {
  const ModelConfig config = taken(tiny_config(kQwen2));
  std::vector<std::string> names;
  for (const TensorSpec& spec : tensor_specs(config)) {
    if (spec.name.find("layers.1") == std::string::npos)
      names.push_back(spec.name + fmt::format(" {}", spec.elements()));
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre(
                  "model.embed_tokens.weight 768", "model.layers.0.self_attn.q_proj.weight 256",
                  "model.layers.0.self_attn.q_proj.bias 16", "model.layers.0.self_attn.k_proj.weight 128",
                  "model.layers.0.self_attn.k_proj.bias 8", "model.layers.0.self_attn.v_proj.weight 128",
                  "model.layers.0.self_attn.v_proj.bias 8", "model.layers.0.self_attn.o_proj.weight 256",
                  "model.layers.0.mlp.gate_proj.weight 384", "model.layers.0.mlp.up_proj.weight 384",
                  "model.layers.0.mlp.down_proj.weight 384", "model.layers.0.input_layernorm.weight 16",
                  "model.layers.0.post_attention_layernorm.weight 16", "model.norm.weight 16", "lm_head.weight 768"));
}

TEST(ModelTensors, HaveTheBiasesThatAreConfigured) {
  const ModelConfig config = taken(tiny_config(kLlama));
  std::vector<std::string> biases;
  for (const TensorSpec& spec : tensor_specs(config)) {
    if (spec.kind == TensorSpec::Kind::kBias && spec.name.starts_with("model.layers.1.")) {
      biases.push_back(spec.name.substr(15) + fmt::format(" {}", spec.elements()));
    }
  }
  EXPECT_THAT(biases, ::testing::ElementsAre("self_attn.q_proj.bias 16", "self_attn.k_proj.bias 8",
                                             "self_attn.v_proj.bias 8", "self_attn.o_proj.bias 16",
                                             "mlp.gate_proj.bias 24", "mlp.up_proj.bias 24", "mlp.down_proj.bias 16"));
}

TEST(ModelTensors, FollowWhichLayersHaveExperts) {
  Json json = tiny_config(kQwen3Moe);
  json["num_hidden_layers"] = 4;
  json["decoder_sparse_step"] = 2;
  json["mlp_only_layers"] = {3};
  const ModelConfig config = taken(json);
  std::vector<std::int64_t> with_router;
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    const std::string router = fmt::format("model.layers.{}.mlp.gate.weight", layer);
    for (const TensorSpec& spec : tensor_specs(config)) {
      if (spec.name == router) with_router.push_back(layer);
    }
  }
  EXPECT_THAT(with_router, ::testing::ElementsAre(1));
}

// The published counts: "Number of Parameters" and "(Non-Embedding)" or "Activated" on the models' cards.
TEST(ModelSize, IsWhatModelCardsSay) {
  Json json = tiny_config(kQwen3);
  json.update({{"vocab_size", 151936},
               {"hidden_size", 1024},
               {"intermediate_size", 3072},
               {"num_hidden_layers", 28},
               {"num_attention_heads", 16},
               {"num_key_value_heads", 8},
               {"head_dim", 128},
               {"tie_word_embeddings", true}});
  ModelConfig config = taken(json);
  ModelSize size = model_size(config);
  EXPECT_EQ(size.parameters, 596'049'920);  // Qwen3-0.6B
  EXPECT_NEAR(static_cast<double>(size.parameters - 151936 * 1024), 0.44e9, 0.005e9);
  EXPECT_EQ(size.flop_per_token_and_position, 4 * 2048 * 28);
  EXPECT_EQ(size.cache_elements_per_position, 2 * 1024 * 28);

  json = tiny_config(kQwen3Moe);
  json.update({{"vocab_size", 151936},
               {"hidden_size", 2048},
               {"intermediate_size", 6144},
               {"num_hidden_layers", 48},
               {"num_attention_heads", 32},
               {"num_key_value_heads", 4},
               {"head_dim", 128},
               {"num_experts", 128},
               {"num_experts_per_tok", 8},
               {"moe_intermediate_size", 768}});
  config = taken(json);
  size = model_size(config);
  EXPECT_NEAR(static_cast<double>(size.parameters), 30.5e9, 0.05e9);  // Qwen3-30B-A3B
  EXPECT_NEAR(static_cast<double>(size.matrix_parameters_active + 151936 * 2048), 3.3e9, 0.06e9);
  EXPECT_EQ(size.flop_per_token, 2 * size.matrix_parameters_active);
}

}  // namespace
}  // namespace weightcast
