#pragma once

#include <filesystem>
#include <string_view>

#include "base/files/file_system.h"
#include "base/result.h"
#include "model/decoder.h"

namespace weightcast {

/// Writes the decoder's adapter in PEFT's layout: adapter_config.json and adapter_model.safetensors. `base_model` is
/// the path or name of the model beneath. The directory appears when it is complete. Errors: kInvalidArgument (there is
/// no adapter); kAlreadyExists (`directory` exists); those of writing.
[[nodiscard]] Status write_adapter(FileSystem& files, const std::filesystem::path& directory, const Decoder& decoder,
                                   std::string_view base_model);

/// Adds the adapter of a directory in PEFT's layout to `decoder`. Errors: those of LoraFiles::open(), read_tensor()
/// and Decoder::add_adapter(). After an error the decoder has no adapter more.
[[nodiscard]] Status load_adapter(FileSystem& files, const std::filesystem::path& directory, Decoder& decoder);

}  // namespace weightcast
