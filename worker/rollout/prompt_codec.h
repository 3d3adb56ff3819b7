#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "tasks/task.h"

namespace weightcast {

struct PromptOptions {
  std::string chat_template = "none";  ///< "none": the messages one after the other; "qwen": Qwen3's template
  bool enable_thinking = false;
  std::uint64_t max_prompt_length = 512;
};

/// Prompts and responses as tokens. A response ends with <|endoftext|>, or with <|im_end|> under a chat template.
class PromptCodec {
 public:
  /// Errors: kInvalidArgument if the tokenizer has no such token.
  [[nodiscard]] static Result<PromptCodec> make(Tokenizer tokenizer, const PromptOptions& options);

  /// Errors: kTooLarge (longer than max_prompt_length); those of the tokenizer.
  [[nodiscard]] Result<std::vector<TokenId>> prompt_ids(const Prompt& prompt) const;
  /// What goes on from an answer that the environment has replied to with `observation`: the next prompt without all
  /// before it. `is_ended`: the answer has the token that ends it. Errors: as prompt_ids().
  [[nodiscard]] Result<std::vector<TokenId>> observation_ids(std::string_view observation, bool is_ended) const;
  /// With the token that ends it.
  [[nodiscard]] Result<std::vector<TokenId>> response_ids(std::string_view response) const;
  /// Without the token that ends it. Ids that are no tokens make an empty text, which no task rewards.
  [[nodiscard]] std::string response_text(std::span<const TokenId> ids) const;

  [[nodiscard]] TokenId end_token() const { return end_token_; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  PromptCodec(Tokenizer tokenizer, PromptOptions options, TokenId end_token)
      : tokenizer_(std::move(tokenizer)), options_(std::move(options)), end_token_(end_token) {}

  Tokenizer tokenizer_;
  PromptOptions options_;
  TokenId end_token_;
};

}  // namespace weightcast
