#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trainer/model/config.h"

namespace weightcast {

/// A low-rank adapter (LoRA) as PEFT's adapter_config.json describes it: beside the product with a matrix of a target
/// module, scale() * B A dropout(x).
struct LoraConfig {
  /// "r" in PEFT.
  std::int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  /// Divide alpha by the root of the rank, instead of by the rank.
  bool use_rslora = false;
  /// Last parts of the modules' names, of those in lora_target_modules().
  std::vector<std::string> target_modules;

  [[nodiscard]] double scale() const;
};

/// "q_proj" and the like: the matrices of layers. The router, the embedding and the head have no adapters here.
[[nodiscard]] const std::vector<std::string_view>& lora_target_modules();

/// Checks the ranges. Errors: kInvalidArgument, which names the field, or the module with the nearest one.
[[nodiscard]] Status check_lora_config(const LoraConfig& config);

/// Reads an adapter_config.json. "all-linear" stands for all of lora_target_modules().
/// Errors: as check_lora_config(); kUnsupported, which names the kind of adapter that this build does not compute
/// (DoRA, biases, ranks per module, ...).
[[nodiscard]] Result<LoraConfig> parse_lora_config(std::string_view adapter_config_json);

/// The text of an adapter_config.json that PEFT reads. `base_model` is the path or name of the model beneath.
[[nodiscard]] std::string lora_config_json(const LoraConfig& config, std::string_view base_model);

/// A matrix with an adapter.
struct LoraTarget {
  /// "model.layers.0.self_attn.q_proj".
  std::string module;
  /// PEFT's names: "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", [rank, inputs]; B: [outputs,
  /// rank].
  TensorSpec a;
  TensorSpec b;
};

/// The model's matrices that the adapter has, in the order of tensor_specs().
[[nodiscard]] std::vector<LoraTarget> lora_targets(const ModelConfig& model, const LoraConfig& config);

}  // namespace weightcast
