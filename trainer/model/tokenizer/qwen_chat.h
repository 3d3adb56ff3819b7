#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/chat_message.h"
#include "base/result.h"

namespace weightcast {

/// Which of Qwen's chat templates.
enum class QwenChat {
  kQwen2_5,      ///< a default system message, which says who it is; no thoughts
  kQwen2_5Base,  ///< the same with the message of Qwen2.5's base models, which is Qwen2's
  kQwen2_5Math,  ///< the same with the message of Qwen2.5-Math
  kQwen3,        ///< no default system message; of earlier answers the thoughts are left out
};

struct ChatOptions {
  QwenChat style = QwenChat::kQwen3;
  bool add_generation_prompt = true;
  /// Qwen3: without it the answer begins behind an empty thought.
  bool enable_thinking = true;
  /// All of Qwen2.5: the default system message comes first where the messages have none. Without it they go on from a
  /// conversation that has begun.
  bool default_system_message = true;
};

/// The text of a conversation, whose tokens a model continues. Equal to what Qwen's own template gives without tools.
/// Errors: kInvalidArgument for no message at all; kUnsupported for a role other than system, user and assistant.
[[nodiscard]] Result<std::string> render_qwen_chat(std::span<const ChatMessage> messages, const ChatOptions& options);

/// Which of them a model's own chat template is, which is Jinja; nothing if it may be another one. It goes by texts in
/// which all templates that TRL ships differ, as nothing here runs Jinja.
[[nodiscard]] std::optional<QwenChat> recognise_qwen_chat(std::string_view chat_template);

/// How the model of a directory with these `files`, by name, reads conversations: by its own chat template
/// (chat_template.jinja, or chat_template of tokenizer_config.json), as Qwen3 without one. Nothing if that is a
/// template that we do not have. Errors: kInvalidArgument (tokenizer_config.json is no JSON object).
[[nodiscard]] Result<std::optional<QwenChat>> chat_style_of(const std::map<std::string, std::string>& files);

}  // namespace weightcast
