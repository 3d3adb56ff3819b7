#include "trainer/learner/policy.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "model/model_files.h"
#include "model/tokenizer/tokenizer.h"
#include "model/weights.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kTextBytesMax = std::uint64_t{256} << 20;
const std::string kModelFile = "model.safetensors";
const std::string kOptimizerFile = "optimizer.safetensors";

torch::ScalarType dtype_of(const LearnerConfig& config) {
  return config.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

/// config.json of a Qwen3 with the tokenizer of bytes.
std::string init_config_json(const LearnerConfig& c, std::int32_t vocab_size) {
  const nlohmann::json json = {{"architectures", {"Qwen3ForCausalLM"}},
                               {"model_type", "qwen3"},
                               {"vocab_size", vocab_size},
                               {"hidden_size", c.init_hidden_size},
                               {"intermediate_size", c.init_intermediate_size},
                               {"num_hidden_layers", c.init_num_hidden_layers},
                               {"num_attention_heads", c.init_num_attention_heads},
                               {"num_key_value_heads", c.init_num_key_value_heads},
                               {"head_dim", c.init_hidden_size / c.init_num_attention_heads},
                               {"hidden_act", "silu"},
                               {"max_position_embeddings", 4096},
                               {"rms_norm_eps", 1e-6},
                               {"rope_theta", 10000.0},
                               {"initializer_range", 0.02},
                               {"attention_bias", false},
                               {"tie_word_embeddings", true},
                               {"torch_dtype", c.dtype}};
  return json.dump(2) + "\n";
}

MutableBytes bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

std::vector<std::uint64_t> shape_of(const torch::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

Result<AdamW> make_optimiser(const Decoder& decoder, const LearnerConfig& config) {
  const std::vector<TensorSpec> specs = tensor_specs(decoder.config());
  std::vector<AdamWParameter> parameters;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const torch::Tensor& tensor = decoder.parameters()[i].tensor;
    const auto cells = static_cast<std::size_t>(tensor.numel());
    AdamWParameter parameter;
    if (tensor.scalar_type() == at::kBFloat16) {
      parameter.weights = std::span(static_cast<Bf16Bits*>(tensor.data_ptr()), cells);
    } else {
      parameter.weights = std::span(tensor.data_ptr<float>(), cells);
    }
    const bool is_matrix = specs[i].kind == TensorSpec::Kind::kMatrix || specs[i].kind == TensorSpec::Kind::kEmbedding;
    parameter.weight_decay = is_matrix ? config.weight_decay : 0;
    parameters.push_back(parameter);
  }
  AdamWOptions options;
  options.beta1 = config.adam_beta1;
  options.beta2 = config.adam_beta2;
  options.epsilon = config.adam_epsilon;
  options.grad_norm_max = config.max_grad_norm;
  options.threads_max = static_cast<unsigned>(config.threads);
  return AdamW::make(options, std::move(parameters));
}

/// "model.norm.weight.exp_avg": as others name what AdamW keeps.
std::string part_name(const std::string& parameter, AdamW::StatePart::Kind kind) {
  switch (kind) {
    case AdamW::StatePart::Kind::kMaster: return parameter + ".master";
    case AdamW::StatePart::Kind::kMoment1: return parameter + ".exp_avg";
    case AdamW::StatePart::Kind::kMoment2: return parameter + ".exp_avg_sq";
    case AdamW::StatePart::Kind::kChanged: return parameter + ".changed";
  }
  return parameter;
}

Status take(std::span<const StoredTensor> from, const std::string& name, MutableBytes into) {
  for (const StoredTensor& tensor : from) {
    if (tensor.info.name != name) continue;
    if (tensor.bytes.size() != into.size()) break;
    std::memcpy(into.data(), tensor.bytes.data(), into.size());
    return {};
  }
  return fail(Errc::kCorrupt, Op::kRead,
              fmt::format("checkpoint: tensor {} is missing or of another size", quoted_name(name)));
}

}  // namespace

Result<InitialModel> make_initial_model(FileSystem& files, const LearnerConfig& config) {
  DecoderOptions options;
  options.dtype = dtype_of(config);
  if (config.model.empty()) {
    const std::string tokenizer_json = byte_tokenizer_json();
    WC_ASSIGN(const Tokenizer tokenizer, Tokenizer::parse(tokenizer_json));
    const std::string config_json = init_config_json(config, tokenizer.vocab_size());
    WC_ASSIGN(const ModelConfig model, parse_model_config(config_json));
    WC_ASSIGN(Decoder decoder, Decoder::random(model, config.seed, options));
    return InitialModel{std::move(decoder), config_json, tokenizer_json};
  }
  const std::filesystem::path directory = config.model;
  WC_ASSIGN(const ModelFiles model, ModelFiles::open(files, directory));
  WC_ASSIGN(std::string config_json, read_file(files, directory / "config.json", kTextBytesMax));
  WC_ASSIGN(std::string tokenizer_json, read_file(files, directory / "tokenizer.json", kTextBytesMax));
  WC_ASSIGN(Decoder decoder, Decoder::load(model, options));
  return InitialModel{std::move(decoder), std::move(config_json), std::move(tokenizer_json)};
}

Policy::Policy(Decoder decoder, AdamW optimiser) : decoder_(std::move(decoder)), optimiser_(std::move(optimiser)) {
  decoder_.set_requires_grad(true);
  for (const Parameter& parameter : decoder_.parameters()) {
    if (parameter.tensor.scalar_type() == at::kFloat) continue;
    accumulated_.push_back(at::zeros(parameter.tensor.sizes(), at::kFloat));
  }
}

Result<Policy> Policy::make(Decoder decoder, const LearnerConfig& config) {
  WC_ASSIGN(AdamW optimiser, make_optimiser(decoder, config));
  return Policy(std::move(decoder), std::move(optimiser));
}

Status Policy::reset_optimiser(const LearnerConfig& config) {
  WC_ASSIGN(optimiser_, make_optimiser(decoder_, config));
  return {};
}

void Policy::backward(const torch::Tensor& loss) {
  loss.backward();
  if (accumulated_.empty()) return;  // FP32: autograd adds up by itself
  for (std::size_t i = 0; i < accumulated_.size(); ++i) {
    torch::Tensor& gradient = decoder_.parameters()[i].tensor.mutable_grad();
    if (!gradient.defined()) continue;
    accumulated_[i].add_(gradient);
    gradient.reset();
  }
}

Result<AdamWUpdate> Policy::update(double learning_rate) {
  std::vector<GradientCells> gradients;
  std::vector<torch::Tensor> contiguous;  // owns what the spans point to
  for (std::size_t i = 0; i < decoder_.parameters().size(); ++i) {
    const torch::Tensor gradient = accumulated_.empty() ? decoder_.parameters()[i].tensor.grad() : accumulated_[i];
    if (!gradient.defined()) {
      gradients.emplace_back(std::span<const float>());
      continue;
    }
    contiguous.push_back(gradient.contiguous());
    gradients.emplace_back(
        std::span<const float>(contiguous.back().data_ptr<float>(), static_cast<std::size_t>(gradient.numel())));
  }
  WC_ASSIGN(const AdamWUpdate update, optimiser_.update(learning_rate, gradients));
  for (const Parameter& parameter : decoder_.parameters()) {
    torch::Tensor tensor = parameter.tensor;
    if (accumulated_.empty()) tensor.mutable_grad().reset();
  }
  for (torch::Tensor& sum : accumulated_) sum.zero_();
  return update;
}

std::vector<PublishedTensor> Policy::published() const {
  std::vector<PublishedTensor> tensors;
  for (const Parameter& parameter : decoder_.parameters()) {
    tensors.push_back({parameter.name, std::string(dtype_name(parameter.tensor.scalar_type())),
                       shape_of(parameter.tensor), bytes_of(parameter.tensor)});
  }
  return tensors;
}

std::uint64_t Policy::weight_bytes() const {
  std::uint64_t bytes = 0;
  for (const Parameter& parameter : decoder_.parameters()) bytes += parameter.tensor.nbytes();
  return bytes;
}

void Policy::save(Checkpoint& checkpoint) const {
  checkpoint.tensors[kModelFile] = copy_weights(decoder_);
  std::vector<StoredTensor>& parts = checkpoint.tensors[kOptimizerFile];
  for (const AdamW::StatePart& part : optimiser_.state()) {
    const bool is_bits = part.kind == AdamW::StatePart::Kind::kChanged;
    const std::string name = part_name(decoder_.parameters()[part.parameter].name, part.kind);
    parts.push_back({{name, is_bits ? "I64" : "F32", {part.bytes.size() / (is_bits ? 8 : 4)}, 0, part.bytes.size()},
                     {part.bytes.begin(), part.bytes.end()}});
  }
}

Status Policy::load(const Checkpoint& checkpoint) {
  const auto weights = checkpoint.tensors.find(kModelFile), parts = checkpoint.tensors.find(kOptimizerFile);
  if (weights == checkpoint.tensors.end() || parts == checkpoint.tensors.end()) {
    return fail(Errc::kCorrupt, Op::kRead, fmt::format("checkpoint: {} or {} is missing", kModelFile, kOptimizerFile));
  }
  WC_TRY(set_weights(decoder_, weights->second));
  for (const AdamW::StatePart& part : optimiser_.state()) {
    WC_TRY(take(parts->second, part_name(decoder_.parameters()[part.parameter].name, part.kind), part.bytes));
  }
  return {};
}

std::vector<StoredTensor> copy_weights(const Decoder& decoder) {
  std::vector<StoredTensor> copies;
  for (const Parameter& parameter : decoder.parameters()) {
    const MutableBytes bytes = bytes_of(parameter.tensor);
    copies.push_back({{parameter.name, std::string(dtype_name(parameter.tensor.scalar_type())),
                       shape_of(parameter.tensor), 0, bytes.size()},
                      {bytes.begin(), bytes.end()}});
  }
  return copies;
}

Status set_weights(const Decoder& decoder, std::span<const StoredTensor> weights) {
  for (const Parameter& parameter : decoder.parameters()) {
    WC_TRY(take(weights, parameter.name, bytes_of(parameter.tensor)));
  }
  return {};
}

}  // namespace weightcast
