#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/model/tokenizer/qwen_chat.h"
#include "trainer/model/tokenizer/tokenizer.h"
#include "trainer/tasks/task.h"

namespace weightcast {

struct PromptOptions {
  std::optional<QwenChat> chat_style = std::nullopt;  ///< how messages become text; nothing: one after the other
  bool enable_thinking = false;
  std::uint64_t max_prompt_length = 512;
};

/// How a run's description names a style: "none", "qwen2.5", "qwen2.5-base", "qwen2.5-math", or "qwen", which is
/// Qwen3's.
[[nodiscard]] std::string_view chat_template_name(std::optional<QwenChat> style);
/// Errors: kInvalidArgument (no such name).
[[nodiscard]] Result<std::optional<QwenChat>> parse_chat_template(std::string_view name);

/// A conversation as tokens, and which of them the assistant said: 1 for those, with the token that ends an answer.
struct ConversationIds {
  std::vector<TokenId> tokens;
  std::vector<std::uint8_t> is_answer;
};

/// Prompts and responses as tokens. A response ends with <|im_end|> under a chat template, else with the first of
/// <|endoftext|>, <|end_of_text|> and </s> that the tokenizer has.
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
  /// A conversation as a rollout has it: all messages before the first answer are its prompt, and what follows an
  /// answer is an observation. Errors: kInvalidArgument, unless from there on the user and the assistant take turns;
  /// those of the above.
  [[nodiscard]] Result<ConversationIds> conversation_ids(std::span<const ChatMessage> messages) const;
  /// Without the token that ends it. Ids that are no tokens make an empty text, which no task rewards.
  [[nodiscard]] std::string response_text(std::span<const TokenId> ids) const;

  [[nodiscard]] std::optional<QwenChat> chat_style() const { return options_.chat_style; }
  [[nodiscard]] TokenId end_token() const { return end_token_; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  PromptCodec(Tokenizer tokenizer, PromptOptions options, TokenId end_token)
      : tokenizer_(std::move(tokenizer)), options_(options), end_token_(end_token) {}

  Tokenizer tokenizer_;
  PromptOptions options_;
  TokenId end_token_;
};

}  // namespace weightcast
