#pragma once

#include "patch/snapshot/adapter_names.h"
#include "trainer/model/lora_config.h"
#include "trainer/model/weights.h"

namespace weightcast {

/// Writes the decoder's adapter in PEFT's layout: adapter_config.json and adapter_model.safetensors.
inline Status write_adapter(FileSystem& files, const std::filesystem::path& directory, const Decoder& decoder,
                            std::string_view base_model) {
  return write_new_weights(files, directory, decoder.adapter_parameters(),
                           {{kAdapterConfigFile, lora_config_json(*decoder.adapter(), base_model)}}, kShardBytesMax,
                           kAdapterStem);
}

}  // namespace weightcast
