#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "base/files/file_system.h"
#include "base/result.h"
#include "trainer/model/tokenizer/qwen_chat.h"
#include "trainer/model/tokenizer/tokenizer.h"
#include "worker/engine/engine.h"

namespace weightcast {

/// The tokenizer of a model's directory; null if it has no tokenizer.json. Errors: those of reading and of
/// Tokenizer::parse().
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> read_tokenizer(FileSystem& files,
                                                                      const std::filesystem::path& directory);

/// How the model of a directory reads conversations, as chat_style_of() says. Nothing also if `tokenizer`, which may be
/// null, has no token for it. Errors: those of reading and of chat_style_of().
[[nodiscard]] Result<std::optional<QwenChat>> read_chat_style(FileSystem& files, const std::filesystem::path& directory,
                                                              const Tokenizer* tokenizer);

/// What an engine takes of a model's directory besides weights: its end tokens, and the bytes of `tokenizer`, which may
/// be null. Errors: those of read_end_tokens().
[[nodiscard]] Status set_tokens(FileSystem& files, const std::filesystem::path& directory,
                                std::shared_ptr<const Tokenizer> tokenizer, EngineOptions& options);

}  // namespace weightcast
