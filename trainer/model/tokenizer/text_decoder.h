#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace weightcast {

/// "decoder" of a tokenizer.json: what of tokens becomes text. Any thread may use it.
class TextDecoder {
 public:
  /// Reads ByteLevel, or a Sequence of Replace of a String, ByteFallback, Fuse and Strip of spaces at the beginning, as
  /// files made of SentencePiece models have it. Errors: kUnsupported, which names another one, or the wrong order.
  [[nodiscard]] static Result<TextDecoder> read(const nlohmann::json& json);

  /// Whether it is ByteLevel; otherwise it has ByteFallback.
  [[nodiscard]] bool is_byte_level() const { return is_byte_level_; }
  /// The bytes of a token that the file writes as `content`.
  [[nodiscard]] std::string bytes_of(std::string_view content) const;
  /// How many spaces are left out where a text begins.
  [[nodiscard]] std::size_t spaces_left_out() const { return spaces_left_out_; }

 private:
  [[nodiscard]] Status add(const nlohmann::json& json);

  std::vector<std::pair<std::string, std::string>> replacements_;
  std::size_t spaces_left_out_ = 0;
  bool is_byte_level_ = false;
  bool has_byte_fallback_ = false;
  bool is_fused_ = false;  // what comes next is about the whole text
};

/// "<0x0A>": how vocabularies with byte_fallback name a byte.
[[nodiscard]] std::string byte_fallback_name(unsigned char byte);

}  // namespace weightcast
