#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/tokenizer/byte_pair_encoder.h"

namespace weightcast {

struct TokenizeOptions {
  /// What tokenizer.json asks for (Unicode's normal form C). Without it any bytes come back exactly.
  bool normalize = true;
  /// Special tokens in the text are themselves. Without it, as for text from strangers, they are text.
  bool special_tokens = true;
};

/// A tokenizer as Hugging Face's tokenizer.json describes it: byte-level BPE with pre-tokenisers by pattern, and added
/// and special tokens. Its ids are those of the `tokenizers` library. Immutable; any thread may use it.
class Tokenizer {
 public:
  static constexpr std::size_t kTextBytesMax = std::size_t{256} << 20;

  /// Reads the content of a tokenizer.json. Errors: kInvalidArgument, which names the member that is missing or wrong;
  /// kUnsupported, which names the kind of model, normaliser, pre-tokeniser, decoder or token that we do not have.
  [[nodiscard]] static Result<Tokenizer> parse(std::string_view tokenizer_json);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// The tokens of any bytes. Bytes that are not UTF-8 are pieces of their own. Adds no token at either end.
  /// Errors: kTooLarge beyond kTextBytesMax; kInvalidArgument if a pattern takes too much, or if a byte has no token.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text, const TokenizeOptions& options = {}) const;
  /// The bytes of the tokens. A token may end within a character, so they need not be UTF-8.
  /// Errors: kInvalidArgument, which gives the position of an id that is no token.
  [[nodiscard]] Result<std::string> decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  /// One more than the largest id.
  [[nodiscard]] TokenId vocab_size() const;
  /// The id of an added or special token, such as "<|im_end|>".
  [[nodiscard]] std::optional<TokenId> added_token(std::string_view content) const;
  /// SHA-256 of tokenizer.json in hexadecimal digits: what a trajectory names.
  [[nodiscard]] const std::string& digest() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);

  std::unique_ptr<const State> state_;
};

/// A tokenizer.json without merges: byte b is token b, and then come <|endoftext|>, <|im_start|> and <|im_end|>. For
/// models of a few million parameters, and readable by other stacks.
[[nodiscard]] std::string byte_tokenizer_json();

}  // namespace weightcast
