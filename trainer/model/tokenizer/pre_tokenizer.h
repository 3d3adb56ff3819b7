#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trainer/model/tokenizer/splitter.h"

namespace weightcast {

/// "pre_tokenizer" of a tokenizer.json: cuts normalised text into the pieces that are encoded each by itself. Either
/// patterns, one after the other, or Metaspace, SentencePiece's way: spaces become '▁', and one comes first. Any thread
/// may use it.
class PreTokenizer {
 public:
  /// Reads ByteLevel, Split by a Regex, Metaspace, Sequence of these, and null. Errors: kUnsupported, which names
  /// another one, or a use of one that we do not have.
  [[nodiscard]] static Result<PreTokenizer> read(const nlohmann::json& json);

  /// Whether ByteLevel is among them: pieces are then bytes, as the vocabulary writes them.
  [[nodiscard]] bool is_byte_level() const { return is_byte_level_; }
  [[nodiscard]] bool has_patterns() const { return !splitters_.empty(); }

  /// Changes `text`, valid UTF-8 between two added tokens, and appends its pieces: views of it, together all of it.
  /// `is_first`: nothing comes before it. Errors: those of Splitter::split().
  [[nodiscard]] Status split(std::string& text, bool is_first, std::vector<std::string_view>& pieces) const;

 private:
  struct Metaspace {
    enum class Prepend { kAlways, kFirst, kNever } prepend = Prepend::kAlways;
    std::string replacement;
    bool cuts = true;  ///< before each replacement
  };
  [[nodiscard]] Status add(const nlohmann::json& json);
  [[nodiscard]] Status add_metaspace(const nlohmann::json& json);

  std::vector<Splitter> splitters_;
  std::optional<Metaspace> metaspace_;
  bool is_byte_level_ = false;
};

}  // namespace weightcast
