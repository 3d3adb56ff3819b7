#include "trainer/model/decoder.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <unordered_map>

#include "base/exception_error.h"
#include "base/random.h"
#include "trainer/model/layers/attention.h"
#include "trainer/model/layers/layer_functions.h"
#include "trainer/model/layers/products.h"
#include "trainer/model/layers/rope.h"
#include "trainer/model/weights.h"

namespace weightcast {
namespace {

using torch::Tensor;

/// The seed of what is left out; nothing where nothing is.
using Dropout = std::optional<std::uint64_t>;

/// One matrix's adapter.
struct LowRank {
  Tensor a;
  Tensor b;
  double scale = 1;
  double dropout = 0;
  std::uint64_t number = 0;  // of the matrix, so that each leaves out other elements
};

/// 1 / (1 - probability) with that probability, else 0.
Tensor dropout_mask(const Tensor& like, double probability, std::uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(like.device()).clone();
  generator.set_current_seed(seed);
  return at::empty(like.sizes(), like.options()).bernoulli_(1 - probability, generator).div_(1 - probability);
}

struct Linear {
  Tensor weight;
  Tensor bias;  // undefined without one
  std::optional<LowRank> adapter = std::nullopt;

  [[nodiscard]] Tensor operator()(const Tensor& x, const Dropout& dropout) const {
    Tensor result = linear_product(x, weight, bias);
    if (!adapter) return result;
    Tensor input = x;
    if (dropout && adapter->dropout > 0) {
      Random random(*dropout + adapter->number);
      input = x * dropout_mask(x, adapter->dropout, random.next());
    }
    return result + linear_product(linear_product(input, adapter->a), adapter->b) * adapter->scale;
  }
};

struct FeedForward {
  Linear gate;
  Linear up;
  Linear down;

  [[nodiscard]] Tensor operator()(const Tensor& x, const Dropout& dropout) const {
    return down(swiglu(gate(x, dropout), up(x, dropout)), dropout);
  }
};

struct Experts {
  Linear router;
  std::vector<FeedForward> experts;
  std::int64_t experts_per_token = 0;
  bool norm_topk_prob = false;

  /// `x` is [tokens, hidden].
  [[nodiscard]] Tensor operator()(const Tensor& x, const Dropout& dropout) const;
};

struct Layer {
  Tensor input_norm;
  Linear query;
  Linear key;
  Linear value;
  Linear output;
  Tensor query_norm;  // undefined without one
  Tensor key_norm;
  Tensor feed_forward_norm;
  FeedForward dense;  // either this one,
  std::optional<Experts> experts;
  std::vector<Tensor> parameters;
};

/// Queries, keys and values of one layer's input: [..., heads, head_dim].
struct Heads {
  Tensor query;
  Tensor key;
  Tensor value;
};

Tensor Experts::operator()(const Tensor& x, const Dropout& dropout) const {
  const auto count = static_cast<std::int64_t>(experts.size());
  const Tensor probabilities = at::softmax(router(x, dropout), -1, at::kFloat);
  auto [weights, chosen] = probabilities.topk(experts_per_token, -1);
  if (norm_topk_prob) weights = weights / weights.sum(-1, true);

  // Tokens in the order of their experts, each once for every expert that it chose.
  const Tensor flat = chosen.flatten();
  const Tensor by_expert = std::get<1>(flat.sort(true, 0, false));
  RowOrder order;
  order.from = by_expert.div(experts_per_token, "floor");
  order.to = at::empty_like(by_expert);
  order.to.index_copy_(0, by_expert, at::arange(by_expert.size(0), by_expert.options()));
  order.copies = experts_per_token;
  const Tensor counts = at::bincount(flat, {}, count).to(at::kCPU);
  const auto* tokens = counts.data_ptr<std::int64_t>();

  const std::vector<Tensor> inputs = reorder(x, order).split_with_sizes({tokens, static_cast<std::size_t>(count)}, 0);
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (inputs[i].size(0) != 0) results.push_back(experts[i](inputs[i], dropout));
  }
  const Tensor restored = restore(at::cat(results, 0), order).view({x.size(0), experts_per_token, x.size(1)});
  return (restored * weights.to(x.scalar_type()).unsqueeze(-1)).sum(1);
}

/// The shape [..., heads, head_dim].
Tensor in_heads(const Tensor& x, std::int64_t head_dim) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() /= head_dim;
  shape.push_back(head_dim);
  return x.view(shape);
}

}  // namespace

struct Decoder::Network {
  ModelConfig config;
  DecoderOptions options;
  std::vector<Parameter> parameters;
  Tensor embedding;
  Tensor head;
  Tensor norm;
  std::vector<Layer> layers;
  Tensor frequencies;
  std::optional<LoraConfig> adapter;
  std::vector<Parameter> adapter_parameters;
  Dropout dropout;

  Network(ModelConfig model, const DecoderOptions& chosen, std::vector<Parameter> tensors);

  [[nodiscard]] Heads heads(const Layer& layer, const Tensor& x, const Rotation& rotation,
                            const Dropout& left_out) const {
    const Tensor normal = rms_norm(x, layer.input_norm, config.rms_norm_eps);
    Heads result{in_heads(layer.query(normal, left_out), config.head_dim),
                 in_heads(layer.key(normal, left_out), config.head_dim),
                 in_heads(layer.value(normal, left_out), config.head_dim)};
    if (layer.query_norm.defined()) {
      result.query = rms_norm(result.query, layer.query_norm, config.rms_norm_eps);
      result.key = rms_norm(result.key, layer.key_norm, config.rms_norm_eps);
    }
    result.query = rotate(result.query, rotation);
    result.key = rotate(result.key, rotation);
    return result;
  }

  /// The rest of a layer, after attention.
  [[nodiscard]] Tensor finish_layer(const Layer& layer, const Tensor& x, const Tensor& attended,
                                    const Dropout& left_out) const {
    const Tensor after_attention = x + layer.output(attended.flatten(-2, -1), left_out);
    const Tensor normal = rms_norm(after_attention, layer.feed_forward_norm, config.rms_norm_eps);
    if (!layer.experts) return after_attention + layer.dense(normal, left_out);
    return after_attention + (*layer.experts)(normal.reshape({-1, normal.size(-1)}), left_out).view(normal.sizes());
  }

  /// All matrices of layers, by their modules' names.
  [[nodiscard]] std::unordered_map<std::string, std::pair<Layer*, Linear*>> modules();

  [[nodiscard]] Rotation rotation(const Tensor& positions, std::span<const std::int64_t> sequence_starts) const {
    return rope_rotation(frequencies_of(positions.size(0), sequence_starts), config.rope.attention_factor, positions,
                         options.dtype);
  }

  /// [head_dim / 2], or a row per token where sequences' lengths say different ones.
  [[nodiscard]] Tensor frequencies_of(std::int64_t tokens, std::span<const std::int64_t> starts) const;
};

Tensor Decoder::Network::frequencies_of(std::int64_t tokens, std::span<const std::int64_t> starts) const {
  const auto length_of = [&](std::size_t i) { return (i + 1 < starts.size() ? starts[i + 1] : tokens) - starts[i]; };
  bool has_long = false;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    has_long = has_long || length_of(i) > config.rope.original_max_position_embeddings;
  }
  if (!config.rope.depends_on_length() || !has_long) return frequencies;
  std::vector<Tensor> rows;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const Tensor row = torch::tensor(rope_frequencies(config.rope, config.head_dim, length_of(i)), at::kFloat);
    rows.push_back(row.expand({length_of(i), row.size(0)}));
  }
  return at::cat(rows).to(options.device);
}

Decoder::Network::Network(ModelConfig model, const DecoderOptions& chosen, std::vector<Parameter> tensors)
    : config(std::move(model)), options(chosen), parameters(std::move(tensors)) {
  std::unordered_map<std::string, Tensor> by_name;
  for (const Parameter& parameter : parameters) by_name.emplace(parameter.name, parameter.tensor);
  const auto linear = [&](const std::string& name, bool bias) {
    return Linear{by_name.at(name + ".weight"), bias ? by_name.at(name + ".bias") : Tensor()};
  };
  const auto feed_forward = [&](const std::string& name, bool bias) {
    return FeedForward{linear(name + ".gate_proj", bias), linear(name + ".up_proj", bias),
                       linear(name + ".down_proj", bias)};
  };
  embedding = by_name.at("model.embed_tokens.weight");
  norm = by_name.at("model.norm.weight");
  head = config.tie_word_embeddings ? embedding : by_name.at("lm_head.weight");
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string name = fmt::format("model.layers.{}.", i);
    Layer layer;
    layer.input_norm = by_name.at(name + "input_layernorm.weight");
    layer.feed_forward_norm = by_name.at(name + "post_attention_layernorm.weight");
    layer.query = linear(name + "self_attn.q_proj", config.qkv_bias);
    layer.key = linear(name + "self_attn.k_proj", config.qkv_bias);
    layer.value = linear(name + "self_attn.v_proj", config.qkv_bias);
    layer.output = linear(name + "self_attn.o_proj", config.output_bias);
    if (config.qk_norm) {
      layer.query_norm = by_name.at(name + "self_attn.q_norm.weight");
      layer.key_norm = by_name.at(name + "self_attn.k_norm.weight");
    }
    if (config.layer_has_experts(i)) {
      Experts experts{
          linear(name + "mlp.gate", false), {}, config.experts->experts_per_token, config.experts->norm_topk_prob};
      for (std::int64_t j = 0; j < config.experts->experts; ++j) {
        experts.experts.push_back(feed_forward(fmt::format("{}mlp.experts.{}", name, j), false));
      }
      layer.experts = std::move(experts);
    } else {
      layer.dense = feed_forward(name + "mlp", config.mlp_bias);
    }
    for (const Parameter& parameter : parameters) {
      if (parameter.name.starts_with(name)) layer.parameters.push_back(parameter.tensor);
    }
    layers.push_back(std::move(layer));
  }
  frequencies = torch::tensor(rope_frequencies(config.rope, config.head_dim), at::kFloat).to(options.device);
}

std::unordered_map<std::string, std::pair<Layer*, Linear*>> Decoder::Network::modules() {
  std::unordered_map<std::string, std::pair<Layer*, Linear*>> result;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Layer& layer = layers[i];
    const std::string name = fmt::format("model.layers.{}.", i);
    const auto add_feed_forward = [&](const std::string& module, FeedForward& block) {
      result[module + ".gate_proj"] = {&layer, &block.gate};
      result[module + ".up_proj"] = {&layer, &block.up};
      result[module + ".down_proj"] = {&layer, &block.down};
    };
    result[name + "self_attn.q_proj"] = {&layer, &layer.query};
    result[name + "self_attn.k_proj"] = {&layer, &layer.key};
    result[name + "self_attn.v_proj"] = {&layer, &layer.value};
    result[name + "self_attn.o_proj"] = {&layer, &layer.output};
    if (!layer.experts) {
      add_feed_forward(name + "mlp", layer.dense);
      continue;
    }
    for (std::size_t j = 0; j < layer.experts->experts.size(); ++j) {
      add_feed_forward(fmt::format("{}mlp.experts.{}", name, j), layer.experts->experts[j]);
    }
  }
  return result;
}

Decoder::Decoder(std::unique_ptr<Network> network) : network_(std::move(network)) {}
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

Decoder Decoder::of_same_parameters() const {
  return Decoder(std::make_unique<Network>(network_->config, network_->options, network_->parameters));
}

const ModelConfig& Decoder::config() const { return network_->config; }
const DecoderOptions& Decoder::options() const { return network_->options; }
const std::vector<Parameter>& Decoder::parameters() const { return network_->parameters; }
Tensor Decoder::head() const { return network_->head; }

void Decoder::set_requires_grad(bool requires_grad) {
  for (const Parameter& parameter : trained_parameters()) parameter.tensor.set_requires_grad(requires_grad);
}

const std::vector<Parameter>& Decoder::trained_parameters() const {
  return network_->adapter ? network_->adapter_parameters : network_->parameters;
}

const std::optional<LoraConfig>& Decoder::adapter() const { return network_->adapter; }
const std::vector<Parameter>& Decoder::adapter_parameters() const { return network_->adapter_parameters; }
void Decoder::set_dropout(std::optional<std::uint64_t> seed) { network_->dropout = seed; }

Status Decoder::add_adapter(const LoraConfig& config, std::uint64_t seed) {
  WC_TRY(check_lora_config(config));
  Network& network = *network_;
  if (network.adapter) {
    return fail(Errc::kAlreadyExists, Op::kConfigure,
                "the model has an adapter; write the merged model, and load that");
  }
  set_requires_grad(false);
  const at::NoGradGuard no_gradients;
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto modules = network.modules();
  std::uint64_t number = 0;
  for (const LoraTarget& target : lora_targets(network.config, config)) {
    // What kaiming_uniform_ with a = sqrt(5) comes to.
    const double bound = 1 / std::sqrt(static_cast<double>(target.a.shape[1]));
    const at::TensorOptions form(at::kFloat);
    const Tensor a = at::empty(target.a.shape, form)
                         .uniform_(-bound, bound, generator)
                         .to(network.options.device, network.options.dtype);
    const Tensor b = at::zeros(target.b.shape, form.device(network.options.device).dtype(network.options.dtype));
    const auto [layer, linear] = modules.at(target.module);
    linear->adapter = LowRank{a, b, config.scale(), config.dropout, number++};
    layer->parameters.insert(layer->parameters.end(), {a, b});
    network.adapter_parameters.push_back({target.a.name, a});
    network.adapter_parameters.push_back({target.b.name, b});
  }
  network.adapter = config;
  return {};
}

std::vector<Parameter> Decoder::merged_parameters() const {
  std::vector<Parameter> result = network_->parameters;
  if (!network_->adapter) return result;
  const at::NoGradGuard no_gradients;
  const auto modules = network_->modules();
  for (Parameter& parameter : result) {
    const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
    const auto found = modules.find(module);
    if (found == modules.end() || !found->second.second->adapter || !parameter.name.ends_with(".weight")) continue;
    const LowRank& adapter = *found->second.second->adapter;
    const Tensor change = at::matmul(adapter.b.to(at::kFloat), adapter.a.to(at::kFloat)) * adapter.scale;
    parameter.tensor = (parameter.tensor.to(at::kFloat) + change).to(parameter.tensor.scalar_type());
  }
  return result;
}

namespace {

/// Calls `make`, and turns what LibTorch throws into an error.
template <typename Make>
Result<Decoder> caught(const Make& make) {
  try {
    return make();
  } catch (const std::exception& exception) {
    return exception_error(exception, "the model: a library says", "it takes more memory than there is");
  }
}

}  // namespace

Result<Decoder> Decoder::random(const ModelConfig& config, std::uint64_t seed, const DecoderOptions& options) {
  return caught([&]() -> Result<Decoder> {
    const at::NoGradGuard no_gradients;
    const at::Generator generator = at::detail::createCPUGenerator(seed);
    std::vector<Parameter> parameters;
    for (const TensorSpec& spec : tensor_specs(config)) {
      Tensor tensor = at::empty(spec.shape, at::TensorOptions(at::kFloat));
      if (spec.kind == TensorSpec::Kind::kNorm) {
        tensor.fill_(1);
      } else if (spec.kind == TensorSpec::Kind::kBias) {
        tensor.zero_();
      } else {
        tensor.normal_(0, config.initializer_range, generator);
      }
      parameters.push_back({spec.name, tensor.to(options.device, options.dtype)});
    }
    return Decoder(std::make_unique<Network>(config, options, std::move(parameters)));
  });
}

Result<Decoder> Decoder::load(const ModelFiles& files, const DecoderOptions& options) {
  return caught([&]() -> Result<Decoder> {
    const at::NoGradGuard no_gradients;
    std::unordered_map<std::string_view, const TensorInfo*> infos;
    for (const TensorInfo& info : files.snapshot.tensors()) infos.emplace(info.name, &info);
    std::vector<Parameter> parameters;
    for (const TensorSpec& spec : tensor_specs(files.config)) {
      WC_ASSIGN(const Tensor tensor, read_tensor(files.snapshot, *infos.at(spec.name)));
      parameters.push_back({spec.name, tensor.to(options.device, options.dtype)});
    }
    if (const auto head = infos.find("lm_head.weight"); files.config.tie_word_embeddings && head != infos.end()) {
      WC_ASSIGN(const Tensor tensor, read_tensor(files.snapshot, *head->second));
      if (!at::equal(tensor.to(options.device, options.dtype), parameters.front().tensor)) {
        return fail(Errc::kInvalidArgument, Op::kRead,
                    "tensor 'lm_head.weight': config.json ties it to the embedding, and it is another one; set "
                    "tie_word_embeddings to false, or take it out of the weights");
      }
    }
    return Decoder(std::make_unique<Network>(files.config, options, std::move(parameters)));
  });
}

Tensor Decoder::hidden(const Tensor& ids, const Tensor& positions,
                       std::span<const std::int64_t> sequence_starts) const {
  const Network& network = *network_;
  const PackedSequences sequences(sequence_starts, ids.size(0), network.options.device);
  const Rotation rotation = network.rotation(positions, sequence_starts);
  Tensor x = at::embedding(network.embedding, ids);
  for (const Layer& layer : network.layers) {
    // The backward pass may run this after the decoder has moved; the network stays where it is.
    const auto compute = [&network, &layer, rotation, sequences, left_out = network.dropout](const Tensor& input) {
      const Heads heads = network.heads(layer, input, rotation, left_out);
      return network.finish_layer(
          layer, input, packed_attention(heads.query, heads.key, heads.value, sequences, network.config.sliding_window),
          left_out);
    };
    x = network.options.activation_checkpointing ? recomputed(compute, x, layer.parameters) : compute(x);
  }
  return rms_norm(x, network.norm, network.config.rms_norm_eps);
}

Tensor Decoder::hidden(const Tensor& ids, std::span<const std::int64_t> sequence_starts) const {
  std::vector<std::int64_t> positions(static_cast<std::size_t>(ids.size(0)));
  std::size_t sequence = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto token = static_cast<std::int64_t>(i);
    if (sequence + 1 < sequence_starts.size() && sequence_starts[sequence + 1] == token) ++sequence;
    positions[i] = token - sequence_starts[sequence];
  }
  return hidden(ids, torch::tensor(positions, at::kLong).to(network_->options.device), sequence_starts);
}

}  // namespace weightcast
