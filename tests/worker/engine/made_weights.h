#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "trainer/model/config.h"
#include "worker/engine/weights.h"

namespace weightcast {

/// A small model of each kind.
inline ModelConfig small_config(Architecture architecture = Architecture::kQwen3) {
  ModelConfig config;
  config.architecture = architecture;
  config.vocab_size = 40;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.max_position_embeddings = 128;
  config.qk_norm = architecture == Architecture::kQwen3 || architecture == Architecture::kQwen3Moe;
  config.qkv_bias = architecture == Architecture::kQwen2 || architecture == Architecture::kLlama;
  config.output_bias = config.mlp_bias = architecture == Architecture::kLlama;
  if (architecture == Architecture::kMistral) config.sliding_window = 21;
  if (architecture == Architecture::kQwen3Moe) {
    ExpertsConfig experts;
    experts.experts = 4;
    experts.experts_per_token = 2;
    experts.intermediate_size = 12;
    experts.norm_topk_prob = true;
    config.experts = experts;
  }
  return config;
}

/// The memory of a model's tensors.
struct MadeTensors {
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<std::uint16_t>> bfloat16s;
};

/// Weights as fill() of tests/oracles/hf_models.py makes them: parameter i, by name, from Random(seed + i), norms in
/// [0.5, 1.5), all else in [-0.5, 0.5). `scale` is for all but norms; `bfloat16` rounds towards zero.
inline std::shared_ptr<const EngineWeights> made_weights(const ModelConfig& config, std::uint64_t seed,
                                                         double scale = 1, bool bfloat16 = false) {
  const auto memory = std::make_shared<MadeTensors>();
  std::vector<TensorSpec> specs = tensor_specs(config);
  std::sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
  std::vector<NamedTensor> tensors;
  for (const TensorSpec& spec : specs) {
    Random random(seed++);
    const bool norm = spec.name.find("norm") != std::string::npos;
    std::vector<float>& cells = memory->floats.emplace_back();
    for (std::int64_t i = 0; i < spec.elements(); ++i) {
      cells.push_back(static_cast<float>(norm ? random.unit() + 0.5 : scale * (random.unit() - 0.5)));
    }
    if (bfloat16) {
      std::vector<std::uint16_t>& bits = memory->bfloat16s.emplace_back();
      for (const float cell : cells) {
        std::uint32_t wide = 0;
        std::memcpy(&wide, &cell, 4);
        bits.push_back(static_cast<std::uint16_t>(wide >> 16));
      }
      tensors.push_back({spec.name, "BF16", std::as_bytes(std::span(bits))});
    } else {
      tensors.push_back({spec.name, "F32", std::as_bytes(std::span(cells))});
    }
  }
  // The vectors' memory stays where it is when the outer ones grow.
  return EngineWeights::make(config, tensors, memory).value();
}

}  // namespace weightcast
