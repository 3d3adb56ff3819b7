// config.json and adapter_config.json from strangers. What is accepted keeps the invariants that the decoder builds on.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trainer/model/config.h"
#include "trainer/model/lora_config.h"

using namespace weightcast;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const Result<LoraConfig> lora = parse_lora_config(text); lora.has_value()) {
    WC_CHECK(check_lora_config(*lora).has_value());
    WC_CHECK(parse_lora_config(lora_config_json(*lora, "base")).has_value());
  }
  const Result<ModelConfig> config = parse_model_config(text);
  if (!config.has_value()) return 0;
  WC_CHECK(config->num_attention_heads % config->num_key_value_heads == 0);
  WC_CHECK(config->head_dim >= 2 && config->head_dim % 2 == 0);
  if (config->num_hidden_layers > 64 || (config->experts && config->experts->experts > 64)) return 0;
  std::int64_t parameters = 0;
  for (const TensorSpec& spec : tensor_specs(*config)) {
    for (const std::int64_t dimension : spec.shape) WC_CHECK(dimension > 0);
    parameters += spec.elements();
  }
  const ModelSize model = model_size(*config);
  WC_CHECK(model.parameters == parameters && parameters > 0);
  WC_CHECK(model.flop_per_token > 0 && model.flop_per_token_and_position > 0);
  return 0;
}
