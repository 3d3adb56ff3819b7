#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/model/tokenizer/byte_pair_encoder.h"

namespace weightcast {

/// A token that stands for its content as it is, which no merge reaches.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool lstrip = false;      ///< takes the white space before it
  bool rstrip = false;      ///< takes the white space after it
  bool normalized = false;  ///< looked for in normalised text
  bool special = false;
};

/// A stretch of text: an added token, or what lies between two.
struct TextPart {
  std::string_view text;
  std::optional<TokenId> token;
};

/// Cuts `text` at the added tokens in it: of those that begin first the longest. `skip_special`: special ones are text.
/// Takes the tokens whose `normalized` is as given.
class AddedTokenFinder {
 public:
  AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized);

  [[nodiscard]] std::vector<TextPart> split(std::string_view text, bool skip_special) const;

 private:
  /// The longest token that `text` begins with.
  [[nodiscard]] const AddedToken* longest(std::string_view text, bool skip_special) const;

  struct Entry {
    AddedToken token;
    std::ptrdiff_t prefix = -1;  // the longest other entry that this one begins with
  };

  std::vector<Entry> entries_;  // by content
  std::array<bool, 256> begins_{};
};

}  // namespace weightcast
