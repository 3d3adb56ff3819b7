#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "base/files/file_system.h"
#include "base/result.h"
#include "trainer/config/config.h"

namespace weightcast::bench {

/// The tokenizer of bytes in which each of `words` is a token, too, wherever it stands in a text; of two that begin at
/// one place the longer one counts.
[[nodiscard]] std::string word_tokenizer_json(std::span<const std::string> words);

/// Writes a model's directory with random weights of `config`'s seed and init_*, and that tokenizer. Nothing if the
/// directory is there. Errors: those of make_initial_model(), of the configuration and of the disk.
[[nodiscard]] Status write_word_model(FileSystem& files, const std::filesystem::path& directory,
                                      const LearnerConfig& config, std::span<const std::string> words);

}  // namespace weightcast::bench
