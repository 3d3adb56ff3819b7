#include "worker/rollout/prompt_codec.h"

#include <fmt/format.h>

#include "base/text.h"
#include "model/tokenizer/qwen_chat.h"

namespace weightcast {

Result<PromptCodec> PromptCodec::make(Tokenizer tokenizer, const PromptOptions& options) {
  const std::string_view end = options.chat_template == "none" ? "<|endoftext|>" : "<|im_end|>";
  const std::optional<TokenId> token = tokenizer.added_token(end);
  if (token) return PromptCodec(std::move(tokenizer), options, *token);
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("the tokenizer has no {}, with which a response ends; chat_template is '{}'", end,
                          options.chat_template));
}

Result<std::vector<TokenId>> PromptCodec::prompt_ids(const Prompt& prompt) const {
  std::string text;
  if (options_.chat_template == "none") {
    for (const ChatMessage& message : prompt.messages) text += message.content;
  } else {
    WC_ASSIGN(text, render_qwen_chat(prompt.messages, {.enable_thinking = options_.enable_thinking}));
  }
  WC_ASSIGN(std::vector<TokenId> ids, tokenizer_.encode(text));
  if (ids.size() <= options_.max_prompt_length && !ids.empty()) return ids;
  return fail(Errc::kTooLarge, Op::kEncode,
              fmt::format("prompt {} has {} tokens; max_prompt_length is {}", printable(prompt.tag), ids.size(),
                          options_.max_prompt_length));
}

Result<std::vector<TokenId>> PromptCodec::observation_ids(std::string_view observation, bool is_ended) const {
  std::string text(observation);
  if (options_.chat_template != "none") {
    const std::vector<ChatMessage> messages{{"user", text}};
    WC_ASSIGN(text, render_qwen_chat(messages, {.enable_thinking = options_.enable_thinking}));
    text.insert(0, "\n");  // what the template puts behind the end of an answer
  }
  WC_ASSIGN(std::vector<TokenId> ids, tokenizer_.encode(text));
  if (!is_ended) ids.insert(ids.begin(), end_token_);
  if (ids.size() <= options_.max_prompt_length) return ids;
  return fail(
      Errc::kTooLarge, Op::kEncode,
      fmt::format("an observation has {} tokens; max_prompt_length is {}", ids.size(), options_.max_prompt_length));
}

Result<std::vector<TokenId>> PromptCodec::response_ids(std::string_view response) const {
  WC_ASSIGN(std::vector<TokenId> ids, tokenizer_.encode(response, {.special_tokens = false}));
  ids.push_back(end_token_);
  return ids;
}

std::string PromptCodec::response_text(std::span<const TokenId> ids) const {
  if (!ids.empty() && ids.back() == end_token_) ids = ids.first(ids.size() - 1);
  Result<std::string> text = tokenizer_.decode(ids);
  return text.has_value() ? std::move(*text) : std::string();
}

}  // namespace weightcast
