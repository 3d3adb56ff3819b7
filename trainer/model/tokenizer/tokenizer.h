#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trainer/model/tokenizer/byte_pair_encoder.h"

namespace weightcast {

struct TokenizeOptions {
  /// Unicode's normal form C, where tokenizer.json asks for it. Without it any bytes come back exactly from a
  /// byte-level tokenizer.
  bool normalize = true;
  /// Special tokens in the text are themselves. Without it, as for text from strangers, they are text.
  bool special_tokens = true;
  /// The tokens that tokenizer.json puts around a text that stands for itself, such as "<s>" (`add_special_tokens` of
  /// the `tokenizers` library). Not of a chat, whose template has them.
  bool surround = false;
};

struct DecodeOptions {
  bool skip_special_tokens = false;
  /// The tokens begin a text, so a tokenizer of SentencePiece's kind leaves out the space that encode() put before it.
  /// Without it they go on from others: the text of several calls is that of one.
  bool begins = true;
};

/// A tokenizer as Hugging Face's tokenizer.json describes it: BPE, byte-level with pre-tokenisers by pattern (Qwen's,
/// Llama 3's), or over characters with byte_fallback as it was made of a SentencePiece model (Llama 2's, Mistral's),
/// and added and special tokens. Its ids are those of the `tokenizers` library. Immutable; any thread may use it.
class Tokenizer {
 public:
  static constexpr std::size_t kTextBytesMax = std::size_t{256} << 20;

  /// Reads the content of a tokenizer.json. Errors: kInvalidArgument, which names the member that is missing or wrong;
  /// kUnsupported, which names the kind of model, normaliser, pre-tokeniser, decoder or token that we do not have.
  [[nodiscard]] static Result<Tokenizer> parse(std::string_view tokenizer_json);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// The tokens of any bytes. Bytes that are not UTF-8 are pieces of their own. Adds no token at either end, unless
  /// told to. Errors: kTooLarge beyond kTextBytesMax; kInvalidArgument if a pattern takes too much, or if a byte has no
  /// token.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text, const TokenizeOptions& options = {}) const;
  /// The bytes of the tokens. A token may end within a character, so they need not be UTF-8.
  /// Errors: kInvalidArgument, which gives the position of an id that is no token.
  [[nodiscard]] Result<std::string> decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

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
