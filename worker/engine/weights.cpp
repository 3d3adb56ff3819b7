#include "worker/engine/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <unordered_map>

#include "patch/snapshot/finite.h"

namespace weightcast {
namespace {

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t exponent = half >> 10 & 0x1f;
  const std::uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1.0p-24F;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t bits =
      exponent == 0x1f ? sign | 0x7f800000 | fraction << 13 : sign | (exponent + 112) << 23 | fraction << 13;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::vector<float> to_floats(const NamedTensor& tensor, std::size_t count) {
  std::vector<float> result(count);
  if (tensor.dtype == "F32") {
    std::memcpy(result.data(), tensor.bytes.data(), 4 * count);
    return result;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
    if (tensor.dtype == "F16") {
      result[i] = half_to_float(bits);
    } else {
      const std::uint32_t wide = std::uint32_t{bits} << 16;
      std::memcpy(&result[i], &wide, 4);
    }
  }
  return result;
}

bool is_aligned(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

}  // namespace

class EngineWeights::Builder {
 public:
  Builder(EngineWeights& weights, std::span<const NamedTensor> tensors, const LoraConfig* adapter)
      : weights_(weights), adapter_(adapter) {
    for (const NamedTensor& tensor : tensors) by_name_.emplace(tensor.name, &tensor);
  }

  Status build() {
    const ModelConfig& config = weights_.config_;
    for (const TensorSpec& spec : tensor_specs(config)) specs_.emplace(spec.name, spec);
    if (adapter_ != nullptr) {
      for (LoraTarget& target : lora_targets(config, *adapter_)) {
        specs_.emplace(target.a.name, target.a);
        specs_.emplace(target.b.name, target.b);
        targets_.emplace(target.module, std::move(target));
      }
    }
    WC_ASSIGN(weights_.embedding_, matrix("model.embed_tokens.weight"));
    weights_.head_ = weights_.embedding_;
    if (!config.tie_word_embeddings) {
      WC_ASSIGN(weights_.head_, matrix("lm_head.weight"));
    }
    WC_ASSIGN(weights_.norm_, vector("model.norm.weight"));
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
      const std::string name = fmt::format("model.layers.{}.", i);
      WeightLayer layer;
      WC_ASSIGN(layer.input_norm, vector(name + "input_layernorm.weight"));
      WC_ASSIGN(layer.feed_forward_norm, vector(name + "post_attention_layernorm.weight"));
      WC_ASSIGN(layer.query, linear(name + "self_attn.q_proj", config.qkv_bias));
      WC_ASSIGN(layer.key, linear(name + "self_attn.k_proj", config.qkv_bias));
      WC_ASSIGN(layer.value, linear(name + "self_attn.v_proj", config.qkv_bias));
      WC_ASSIGN(layer.output, linear(name + "self_attn.o_proj", config.output_bias));
      if (config.qk_norm) {
        WC_ASSIGN(layer.query_norm, vector(name + "self_attn.q_norm.weight"));
        WC_ASSIGN(layer.key_norm, vector(name + "self_attn.k_norm.weight"));
      }
      if (config.layer_has_experts(i)) {
        WC_ASSIGN(layer.router, linear(name + "mlp.gate", false));
        for (std::int64_t j = 0; j < config.experts->experts; ++j) {
          WC_ASSIGN(layer.experts.emplace_back(), feed_forward(fmt::format("{}mlp.experts.{}", name, j), false));
        }
      } else {
        WC_ASSIGN(layer.dense, feed_forward(name + "mlp", config.mlp_bias));
      }
      weights_.layers_.push_back(std::move(layer));
    }
    return {};
  }

 private:
  struct Found {
    const NamedTensor* tensor = nullptr;
    const TensorSpec* spec = nullptr;
    std::size_t elements = 0;
  };

  Result<Found> find(const std::string& name) {
    const TensorSpec& spec = specs_.at(name);
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) {
      return fail(Errc::kInvalidArgument, Op::kInstall, fmt::format("tensor {}: it is missing", quoted_name(name)));
    }
    const NamedTensor& tensor = *found->second;
    const std::size_t element_bytes = tensor.dtype == "F32"                             ? 4
                                      : tensor.dtype == "BF16" || tensor.dtype == "F16" ? 2
                                                                                        : 0;
    if (element_bytes == 0) {
      return fail(Errc::kInvalidArgument, Op::kInstall,
                  fmt::format("tensor {}: its dtype is {}, and not F32, BF16 or F16", quoted_name(name),
                              quoted_name(tensor.dtype)));
    }
    const auto elements = static_cast<std::size_t>(spec.elements());
    if (tensor.bytes.size() != elements * element_bytes) {
      return fail(Errc::kInvalidArgument, Op::kInstall,
                  fmt::format("tensor {}: it has {} bytes, and config.json makes it {}", quoted_name(name),
                              tensor.bytes.size(), elements * element_bytes));
    }
    return Found{&tensor, &spec, elements};
  }

  Result<std::vector<float>> vector(const std::string& name) {
    WC_ASSIGN(const Found found, find(name));
    weights_.bytes_ += 4 * found.elements;
    return to_floats(*found.tensor, found.elements);
  }

  Result<WeightMatrix> matrix(const std::string& name) {
    WC_ASSIGN(const Found found, find(name));
    WeightMatrix result{found.tensor->bytes.data(), found.tensor->dtype == "BF16", found.spec->shape[0],
                        found.spec->shape[1]};
    if (found.tensor->dtype == "F16" || !is_aligned(result.data, result.is_bfloat16 ? 2 : 4)) {
      result.data = weights_.copies_.emplace_back(to_floats(*found.tensor, found.elements)).data();
      result.is_bfloat16 = false;
    }
    weights_.bytes_ += result.bytes();
    return result;
  }

  Result<WeightLinear> linear(const std::string& name, bool bias) {
    WeightLinear result;
    WC_ASSIGN(result.matrix, matrix(name + ".weight"));
    if (bias) {
      WC_ASSIGN(result.bias, vector(name + ".bias"));
    }
    if (const auto target = targets_.find(name); target != targets_.end()) {
      WC_ASSIGN(result.adapter_a, matrix(target->second.a.name));
      WC_ASSIGN(result.adapter_b, matrix(target->second.b.name));
      result.adapter_scale = static_cast<float>(adapter_->scale());
    }
    return result;
  }

  Result<WeightFeedForward> feed_forward(const std::string& name, bool bias) {
    WeightFeedForward result;
    WC_ASSIGN(result.gate, linear(name + ".gate_proj", bias));
    WC_ASSIGN(result.up, linear(name + ".up_proj", bias));
    WC_ASSIGN(result.down, linear(name + ".down_proj", bias));
    return result;
  }

  EngineWeights& weights_;
  const LoraConfig* const adapter_;
  std::unordered_map<std::string_view, const NamedTensor*> by_name_;
  std::unordered_map<std::string, TensorSpec> specs_;
  std::unordered_map<std::string, LoraTarget> targets_;  // by module
};

Result<std::shared_ptr<const EngineWeights>> EngineWeights::make(const ModelConfig& config,
                                                                 std::span<const NamedTensor> tensors,
                                                                 std::shared_ptr<const void> owner,
                                                                 const LoraConfig* adapter) {
  std::shared_ptr<EngineWeights> weights(new EngineWeights);
  weights->config_ = config;
  weights->owner_ = std::move(owner);
  WC_TRY(Builder(*weights, tensors, adapter).build());
  return std::shared_ptr<const EngineWeights>(std::move(weights));
}

Result<std::shared_ptr<const EngineWeights>> EngineWeights::open(ModelFiles files, std::shared_ptr<const void> owner) {
  WC_ASSIGN(MappedModel model, map_model(std::move(files)));
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  return make(model.config, model.tensors, std::make_shared<Both>(std::move(owner), std::move(model.owner)));
}

Result<MappedModel> map_model(ModelFiles files) {
  const auto model = std::make_shared<const ModelFiles>(std::move(files));
  WC_ASSIGN(std::vector<NamedTensor> tensors, map_tensors(model->snapshot));
  return MappedModel{model->config, std::move(tensors), model};
}

Result<std::vector<NamedTensor>> map_tensors(const SnapshotSource& snapshot) {
  const FileTable& table = snapshot.file_table();
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& info : snapshot.tensors()) {
    const std::vector<FilePiece> pieces = table.pieces(info.offset_bytes, info.size_bytes);
    if (pieces.size() != 1) {  // a tensor lies within one file, unless it has no elements, which no model's has
      return fail(Errc::kCorrupt, Op::kInstall,
                  fmt::format("tensor {}: it is not within one file", quoted_name(info.name)));
    }
    WC_ASSIGN(const Bytes bytes, snapshot.mapping(pieces.front().file));
    const Bytes tensor = bytes.subspan(pieces.front().offset_bytes, pieces.front().size_bytes);
    if (const std::uint64_t count = count_non_finite(info.dtype, tensor); count != 0) {
      return fail(
          Errc::kInvalidArgument, Op::kInstall,
          fmt::format("tensor {}: {} of its elements are NaN or infinite; the model was damaged or has diverged",
                      quoted_name(info.name), count));
    }
    tensors.push_back({info.name, info.dtype, tensor});
  }
  return tensors;
}

std::uint64_t EngineWeights::bytes_per_token() const {
  const auto of = [](const WeightFeedForward& block) {
    return block.gate.matrix.bytes() + block.up.matrix.bytes() + block.down.matrix.bytes();
  };
  std::uint64_t sum = head_.bytes();
  for (const WeightLayer& layer : layers_) {
    for (const WeightLinear* linear : {&layer.query, &layer.key, &layer.value, &layer.output}) {
      sum += linear->matrix.bytes();
    }
    if (layer.experts.empty()) {
      sum += of(layer.dense);
    } else {
      sum += layer.router.matrix.bytes() +
             static_cast<std::uint64_t>(config_.experts->experts_per_token) * of(layer.experts.front());
    }
  }
  return sum;
}

Status check_same_model(const ModelConfig& running, const ModelConfig& next) {
  std::string differences;
  const auto compare = [&](std::string_view name, const auto& a, const auto& b) {
    if (a == b) return;
    differences += fmt::format("{}{} is {} and not {}", differences.empty() ? "" : "; ", name, b, a);
  };
  compare("architecture", to_string(running.architecture), to_string(next.architecture));
  compare("vocab_size", running.vocab_size, next.vocab_size);
  compare("hidden_size", running.hidden_size, next.hidden_size);
  compare("intermediate_size", running.intermediate_size, next.intermediate_size);
  compare("num_hidden_layers", running.num_hidden_layers, next.num_hidden_layers);
  compare("num_attention_heads", running.num_attention_heads, next.num_attention_heads);
  compare("num_key_value_heads", running.num_key_value_heads, next.num_key_value_heads);
  compare("head_dim", running.head_dim, next.head_dim);
  compare("max_position_embeddings", running.max_position_embeddings, next.max_position_embeddings);
  compare("rms_norm_eps", running.rms_norm_eps, next.rms_norm_eps);
  compare("tie_word_embeddings", running.tie_word_embeddings, next.tie_word_embeddings);
  compare("qkv_bias", running.qkv_bias, next.qkv_bias);
  compare("output_bias", running.output_bias, next.output_bias);
  compare("mlp_bias", running.mlp_bias, next.mlp_bias);
  compare("qk_norm", running.qk_norm, next.qk_norm);
  compare("sliding_window", running.sliding_window, next.sliding_window);
  compare("rope_type", static_cast<int>(running.rope.type), static_cast<int>(next.rope.type));
  compare("rope_theta", running.rope.theta, next.rope.theta);
  compare("rope factor", running.rope.factor, next.rope.factor);
  compare("original_max_position_embeddings", running.rope.original_max_position_embeddings,
          next.rope.original_max_position_embeddings);
  compare("rope short_factor", fmt::format("{}", fmt::join(running.rope.short_factor, ",")),
          fmt::format("{}", fmt::join(next.rope.short_factor, ",")));
  const ExpertsConfig none;
  const ExpertsConfig& a = running.experts ? *running.experts : none;
  const ExpertsConfig& b = next.experts ? *next.experts : none;
  compare("num_experts", a.experts, b.experts);
  compare("num_experts_per_tok", a.experts_per_token, b.experts_per_token);
  compare("moe_intermediate_size", a.intermediate_size, b.intermediate_size);
  compare("norm_topk_prob", a.norm_topk_prob, b.norm_topk_prob);
  if (differences.empty()) return {};
  return fail(Errc::kInvalidArgument, Op::kInstall,
              fmt::format("the version's config.json differs from that of the model in use: {}", differences));
}

}  // namespace weightcast
