#pragma once

#include <filesystem>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "trainer/model/tokenizer/byte_pair_encoder.h"

namespace weightcast {

/// The tokens that end an answer: eos_token_id of generation_config.json, or else of config.json; one id or a list.
/// None where neither says any. Errors: those of reading; kInvalidArgument for what is no id.
[[nodiscard]] Result<std::vector<TokenId>> read_end_tokens(FileSystem& files, const std::filesystem::path& directory);

}  // namespace weightcast
