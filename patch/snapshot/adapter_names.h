#pragma once

namespace weightcast {

/// The files of a low-rank adapter's directory, as PEFT names them.
/// Source: peft.utils.constants, WEIGHTS_NAME without its extension, SAFETENSORS_WEIGHTS_NAME and CONFIG_NAME.
inline constexpr const char* kAdapterStem = "adapter_model";
inline constexpr const char* kAdapterFile = "adapter_model.safetensors";
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";

}  // namespace weightcast
