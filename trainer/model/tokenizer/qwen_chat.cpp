#include "trainer/model/tokenizer/qwen_chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/settings/nearest_name.h"

namespace weightcast {
namespace {

using std::string_view;
using namespace std::string_view_literals;

constexpr std::array kRoles{"system"sv, "user"sv, "assistant"sv};
constexpr string_view kThinkEnd = "</think>", kThinkBegin = "<think>";

string_view without_leading_lines(string_view text) {
  while (text.starts_with('\n')) text.remove_prefix(1);
  return text;
}

string_view without_lines(string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return without_leading_lines(text);
}

void append_turn(std::string& text, string_view role, string_view content) {
  text.append("<|im_start|>").append(role).append("\n").append(content).append("<|im_end|>\n");
}

/// The position of the last user message, but for those that wrap a tool's response; the last message without one.
std::size_t last_query(std::span<const ChatMessage> messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const string_view content = messages[i].content;
    const bool wraps = content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[i].role == "user" && !wraps) return i;
  }
  return messages.size() - 1;
}

std::string qwen3_answer(string_view content, bool after_last_query, bool last) {
  string_view thought;
  if (const std::size_t first = content.find(kThinkEnd); first != string_view::npos) {
    thought = without_lines(content.substr(0, first));
    if (const std::size_t begin = thought.rfind(kThinkBegin); begin != string_view::npos) {
      thought = without_leading_lines(thought.substr(begin + kThinkBegin.size()));
    }
    content = without_leading_lines(content.substr(content.rfind(kThinkEnd) + kThinkEnd.size()));
  }
  if (!after_last_query || (!last && thought.empty())) return std::string(content);
  std::string answer(kThinkBegin);
  answer.append("\n").append(without_lines(thought)).append("\n").append(kThinkEnd).append("\n\n");
  return answer.append(without_leading_lines(content));
}

struct DefaultMessage {
  QwenChat style;
  string_view in_template;  ///< as a Jinja template spells it
  string_view text;
};

constexpr std::array kDefaultMessages{
    DefaultMessage{QwenChat::kQwen2_5, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
                   "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    DefaultMessage{QwenChat::kQwen2_5Base, "You are a helpful assistant.", "You are a helpful assistant."},
    DefaultMessage{QwenChat::kQwen2_5Math, R"(Please reason step by step, and put your final answer within \\boxed{}.)",
                   R"(Please reason step by step, and put your final answer within \boxed{}.)"}};

}  // namespace

Result<std::string> render_qwen_chat(std::span<const ChatMessage> messages, const ChatOptions& options) {
  if (messages.empty()) return fail(Errc::kInvalidArgument, Op::kEncode, "a chat without messages");
  std::string text;
  const auto* own = std::ranges::find(kDefaultMessages, options.style, &DefaultMessage::style);
  if (own != kDefaultMessages.end() && options.default_system_message && messages[0].role != "system") {
    append_turn(text, "system", own->text);
  }
  const std::size_t query = last_query(messages);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    if (role == "system" || role == "user") {
      append_turn(text, role, content);
    } else if (role != "assistant") {
      return fail(Errc::kUnsupported, Op::kEncode, unknown_name("role of a chat", role, kRoles));
    } else if (options.style == QwenChat::kQwen3) {
      append_turn(text, role, qwen3_answer(content, i > query, i + 1 == messages.size()));
    } else {
      append_turn(text, role, content);
    }
  }
  if (!options.add_generation_prompt) return text;
  text += "<|im_start|>assistant\n";
  if (options.style == QwenChat::kQwen3 && !options.enable_thinking) text += "<think>\n\n</think>\n\n";
  return text;
}

std::optional<QwenChat> recognise_qwen_chat(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  // Those for pictures render what a message's parts are, too.
  if (has("image")) return std::nullopt;
  for (const DefaultMessage& message : kDefaultMessages) {
    if (has(fmt::format(R"('<|im_start|>system\n{}<|im_end|>\n')", message.in_template))) return message.style;
  }
  // Another default message than those.
  constexpr string_view kSystem = R"(<|im_start|>system\n)";
  for (std::size_t at = chat_template.find(kSystem); at != string_view::npos;
       at = chat_template.find(kSystem, at + 1)) {
    if (chat_template.substr(at + kSystem.size(), 1) != "'") return std::nullopt;
  }
  if (!has(R"('<|im_start|>system\n' + messages[0].content)")) return std::nullopt;
  return QwenChat::kQwen3;
}

Result<std::optional<QwenChat>> chat_style_of(const std::map<std::string, std::string>& files) {
  if (const auto own = files.find("chat_template.jinja"); own != files.end()) return recognise_qwen_chat(own->second);
  const auto config = files.find("tokenizer_config.json");
  if (config == files.end()) return std::optional(QwenChat::kQwen3);
  const nlohmann::json json = parse_json(config->second);
  if (!json.is_object()) return fail(Errc::kInvalidArgument, Op::kParse, "tokenizer_config.json is no JSON object");
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return std::optional(QwenChat::kQwen3);
  // Several by name are for models with tools, which we do not have.
  if (!found->is_string()) return std::optional<QwenChat>();
  return recognise_qwen_chat(found->get_ref<const std::string&>());
}

}  // namespace weightcast
