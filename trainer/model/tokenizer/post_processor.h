#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/result.h"
#include "trainer/model/tokenizer/byte_pair_encoder.h"

namespace weightcast {

/// Tokens that "post_processor" of a tokenizer.json puts around a text, such as Llama's "<|begin_of_text|>".
struct SurroundingTokens {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

/// Reads TemplateProcessing's form for a single text, ByteLevel, which puts none, Sequence of these, and null. `id_max`
/// is the greatest id that the file may have. Errors: kUnsupported, which names another one; kInvalidArgument (a token
/// of the form has no ids).
[[nodiscard]] Result<SurroundingTokens> read_post_processor(const nlohmann::json& json, TokenId id_max);

}  // namespace weightcast
