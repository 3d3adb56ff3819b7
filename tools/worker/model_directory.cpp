#include "tools/worker/model_directory.h"

#include <map>
#include <span>
#include <string>
#include <utility>

#include "worker/engine/sampling/end_tokens.h"

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
  std::map<std::string, std::string> found;
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json"}) {
    Result<std::string> text = read_file(files, directory / name, kSidecarBytesMax);
    if (text.has_value()) {
      found[name] = std::move(*text);
    } else if (text.error().code != Errc::kNotFound) {
      return std::move(text).error();
    }
  }
  Result<std::optional<QwenChat>> style = chat_style_of(found);
  return style.has_value() ? style : about(directory.string(), std::move(style).error());
}

Status set_tokens(FileSystem& files, const std::filesystem::path& directory, std::shared_ptr<const Tokenizer> tokenizer,
                  EngineOptions& options) {
  WC_ASSIGN(options.end_tokens, read_end_tokens(files, directory));
  if (tokenizer != nullptr) {
    options.token_bytes = [tokenizer = std::move(tokenizer)](TokenId token) {
      return tokenizer->decode(std::span(&token, 1), {.skip_special_tokens = true, .begins = false})
          .value_or(std::string());
    };
  }
  return {};
}

}  // namespace weightcast
