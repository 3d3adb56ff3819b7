#pragma once

#include <filesystem>

#include "base/files/file_system.h"
#include "base/result.h"
#include "trainer/model/decoder.h"

namespace weightcast {

/// Adds the adapter of a directory in PEFT's layout to `decoder`. Errors: those of LoraFiles::open(), read_tensor()
/// and Decoder::add_adapter(). After an error the decoder has no adapter more.
[[nodiscard]] Status load_adapter(FileSystem& files, const std::filesystem::path& directory, Decoder& decoder);

}  // namespace weightcast
