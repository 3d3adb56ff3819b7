#include "tools/model_directory.h"

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/json_text.h"
#include "worker/engine/end_tokens.h"

namespace weightcast {

Result<std::shared_ptr<const Tokenizer>> read_tokenizer(FileSystem& files, const std::filesystem::path& directory) {
  const Result<std::string> text = read_file(files, directory / "tokenizer.json", kSidecarBytesMax);
  if (!text.has_value()) {
    if (text.error().code == Errc::kNotFound) return std::shared_ptr<const Tokenizer>();
    return text.error();
  }
  WC_ASSIGN(Tokenizer tokenizer, Tokenizer::parse(*text));
  return std::make_shared<const Tokenizer>(std::move(tokenizer));
}

Result<std::optional<QwenChat>> read_chat_style(FileSystem& files, const std::filesystem::path& directory,
                                                const Tokenizer* tokenizer) {
  if (tokenizer == nullptr || !tokenizer->added_token("<|im_start|>")) return std::optional<QwenChat>();
  const Result<std::string> own = read_file(files, directory / "chat_template.jinja", kSidecarBytesMax);
  if (own.has_value()) return recognise_qwen_chat(*own);
  if (own.error().code != Errc::kNotFound) return own.error();
  const Result<std::string> text = read_file(files, directory / "tokenizer_config.json", kSidecarBytesMax);
  if (!text.has_value()) {
    if (text.error().code == Errc::kNotFound) return std::optional(QwenChat::kQwen3);
    return text.error();
  }
  const nlohmann::json config = parse_json(*text);
  if (!config.is_object()) {
    return fail(Errc::kInvalidArgument, Op::kParse,
                (directory / "tokenizer_config.json").string() + ": no JSON object");
  }
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::optional(QwenChat::kQwen3);
  // Several by name are for models with tools, which we do not have.
  if (!found->is_string()) return std::optional<QwenChat>();
  return recognise_qwen_chat(found->get_ref<const std::string&>());
}

Status set_tokens(FileSystem& files, const std::filesystem::path& directory, std::shared_ptr<const Tokenizer> tokenizer,
                  EngineOptions& options) {
  WC_ASSIGN(options.end_tokens, read_end_tokens(files, directory));
  if (tokenizer != nullptr) {
    options.token_bytes = [tokenizer = std::move(tokenizer)](TokenId token) {
      return tokenizer->decode(std::span(&token, 1), true).value_or(std::string());
    };
  }
  return {};
}

}  // namespace weightcast
