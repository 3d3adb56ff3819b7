#include "worker/rollout/prompt_codec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/settings/nearest_name.h"
#include "base/text.h"

namespace weightcast {
namespace {

struct NamedStyle {
  std::string_view name;
  std::optional<QwenChat> style;
};

constexpr std::array kChatTemplates{
    NamedStyle{"none", std::nullopt}, NamedStyle{"qwen", QwenChat::kQwen3}, NamedStyle{"qwen2.5", QwenChat::kQwen2_5},
    NamedStyle{"qwen2.5-base", QwenChat::kQwen2_5Base}, NamedStyle{"qwen2.5-math", QwenChat::kQwen2_5Math}};

// What ends a text under no chat template: Qwen's, Llama 3's, and Llama 2's and Mistral's.
constexpr std::array<std::string_view, 3> kTextEnds{"<|endoftext|>", "<|end_of_text|>", "</s>"};

}  // namespace

std::string_view chat_template_name(std::optional<QwenChat> style) {
  return std::ranges::find(kChatTemplates, style, &NamedStyle::style)->name;
}

Result<std::optional<QwenChat>> parse_chat_template(std::string_view name) {
  const auto found = std::ranges::find(kChatTemplates, name, &NamedStyle::name);
  if (found != kChatTemplates.end()) return found->style;
  std::array<std::string_view, kChatTemplates.size()> names;
  std::ranges::transform(kChatTemplates, names.begin(), &NamedStyle::name);
  return fail(Errc::kInvalidArgument, Op::kParse, unknown_name("chat_template", name, names));
}

Result<PromptCodec> PromptCodec::make(Tokenizer tokenizer, const PromptOptions& options) {
  constexpr std::string_view kTurnEnd = "<|im_end|>";
  const std::span<const std::string_view> ends =
      options.chat_style ? std::span<const std::string_view>(&kTurnEnd, 1) : kTextEnds;
  for (const std::string_view end : ends) {
    const std::optional<TokenId> token = tokenizer.added_token(end);
    if (token) return PromptCodec(std::move(tokenizer), options, *token);
  }
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("the tokenizer has no {}, with which a response ends; chat_template is '{}'",
                          fmt::join(ends, " and no "), chat_template_name(options.chat_style)));
}

Result<std::vector<TokenId>> PromptCodec::prompt_ids(const Prompt& prompt) const {
  std::string text;
  if (options_.chat_style) {
    WC_ASSIGN(text, render_qwen_chat(prompt.messages,
                                     {.style = *options_.chat_style, .enable_thinking = options_.enable_thinking}));
  } else {
    for (const ChatMessage& message : prompt.messages) text += message.content;
  }
  WC_ASSIGN(std::vector<TokenId> ids, tokenizer_.encode(text, {.surround = !options_.chat_style}));
  if (ids.size() <= options_.max_prompt_length && !ids.empty()) return ids;
  return fail(Errc::kTooLarge, Op::kEncode,
              fmt::format("prompt {} has {} tokens; max_prompt_length is {}", printable(prompt.tag), ids.size(),
                          options_.max_prompt_length));
}

Result<std::vector<TokenId>> PromptCodec::observation_ids(std::string_view observation, bool is_ended) const {
  std::string text(observation);
  if (options_.chat_style) {
    const std::vector<ChatMessage> messages{{"user", text}};
    WC_ASSIGN(text, render_qwen_chat(messages, {.style = *options_.chat_style,
                                                .enable_thinking = options_.enable_thinking,
                                                .default_system_message = false}));
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

Result<ConversationIds> PromptCodec::conversation_ids(std::span<const ChatMessage> messages) const {
  constexpr std::string_view kAssistant = "assistant";
  const auto answer = std::ranges::find(messages, kAssistant, &ChatMessage::role);
  Prompt prompt;
  prompt.tag = "conversation";
  prompt.messages.assign(messages.begin(), answer);
  WC_ASSIGN(std::vector<TokenId> tokens, prompt_ids(prompt));
  ConversationIds ids{std::move(tokens), {}};
  ids.is_answer.resize(ids.tokens.size(), 0);
  bool is_answer = true;  // what is to come
  for (const ChatMessage& message : std::span(answer, messages.end())) {
    if (message.role != (is_answer ? kAssistant : "user")) {
      return fail(Errc::kInvalidArgument, Op::kEncode,
                  fmt::format("the message after {} has the role '{}'; user and assistant take turns",
                              is_answer ? "the user's" : "an answer", printable(cut_text(message.role, 40))));
    }
    WC_ASSIGN(const std::vector<TokenId> added,
              is_answer ? response_ids(message.content) : observation_ids(message.content, true));
    ids.tokens.insert(ids.tokens.end(), added.begin(), added.end());
    ids.is_answer.resize(ids.tokens.size(), is_answer ? 1 : 0);
    is_answer = !is_answer;
  }
  return ids;
}

std::string PromptCodec::response_text(std::span<const TokenId> ids) const {
  if (!ids.empty() && ids.back() == end_token_) ids = ids.first(ids.size() - 1);
  Result<std::string> text = tokenizer_.decode(ids);
  return text.has_value() ? std::move(*text) : std::string();
}

}  // namespace weightcast
