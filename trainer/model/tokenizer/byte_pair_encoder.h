#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"

namespace weightcast {

using TokenId = std::int32_t;

/// Byte-pair encoding of one piece of text: joins the neighbours whose merge ranks lowest, the leftmost first, until
/// none is left. Any thread may use it.
class BytePairEncoder {
 public:
  /// What a piece is before the first merge.
  enum class Alphabet {
    kBytes,       ///< a token per byte
    kCharacters,  ///< a token per character; of one that has none a token per byte, named by byte_fallback_name()
  };

  /// `vocab`: the text of each token, with kBytes its bytes. `merges`: pairs of such, the lowest rank first.
  /// Errors: kInvalidArgument, if a merge has a part or a result that is no token, or if a byte of kCharacters has
  /// none.
  [[nodiscard]] static Result<BytePairEncoder> make(std::unordered_map<std::string, TokenId> vocab,
                                                    const std::vector<std::pair<std::string, std::string>>& merges,
                                                    bool ignore_merges, Alphabet alphabet = Alphabet::kBytes);

  /// Appends the tokens of `piece`, in time n log n. Errors: kInvalidArgument, which names a byte that has no token;
  /// only vocabularies of kBytes that were trained without a full alphabet lack any. kTooLarge (2 GiB).
  [[nodiscard]] Status encode(std::string_view piece, std::vector<TokenId>& ids) const;

 private:
  struct Merge {
    std::uint32_t rank = 0;
    TokenId id = 0;
  };

  [[nodiscard]] const Merge* merge_of(TokenId left, TokenId right) const;
  /// Appends the tokens of `piece` before the first merge. Errors: as encode().
  [[nodiscard]] Status add_symbols(std::string_view piece, std::vector<TokenId>& ids) const;

  std::unordered_map<std::string, TokenId> vocab_;
  std::array<TokenId, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, Merge> merges_;
  Alphabet alphabet_ = Alphabet::kBytes;
  bool ignore_merges_ = false;  // a piece that is a token is that token, whatever the merges lead to
};

}  // namespace weightcast
