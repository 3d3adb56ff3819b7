#include "trainer/model/tokenizer/byte_pair_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>

#include "base/text.h"
#include "trainer/model/tokenizer/text_decoder.h"
#include "trainer/model/tokenizer/unicode_text.h"

namespace weightcast {
namespace {

std::uint64_t key_of(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

constexpr TokenId kNoToken = -1;

/// A token of the piece in a doubly linked list over the positions of its first byte.
struct Symbol {
  TokenId id = 0;
  int previous = -1;
  int next = -1;
  bool gone = false;
};

/// A merge that was possible when it was found. The two may have changed since then.
struct Candidate {
  std::uint32_t rank = 0;
  int left = 0;
  TokenId left_id = 0, right_id = 0, id = 0;

  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;  // the top of the queue is the lowest rank
  }
};

}  // namespace

Result<BytePairEncoder> BytePairEncoder::make(std::unordered_map<std::string, TokenId> vocab,
                                              const std::vector<std::pair<std::string, std::string>>& merges,
                                              bool ignore_merges, Alphabet alphabet) {
  BytePairEncoder encoder;
  encoder.alphabet_ = alphabet;
  encoder.ignore_merges_ = ignore_merges;
  encoder.vocab_ = std::move(vocab);
  const auto refuse = [](std::string why) { return fail(Errc::kInvalidArgument, Op::kParse, "tokenizer: " + why); };
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string name = alphabet == Alphabet::kBytes ? std::string(1, static_cast<char>(byte))
                                                          : byte_fallback_name(static_cast<unsigned char>(byte));
    const auto found = encoder.vocab_.find(name);
    encoder.byte_ids_[byte] = found == encoder.vocab_.end() ? kNoToken : found->second;
    if (alphabet == Alphabet::kCharacters && found == encoder.vocab_.end()) {
      return refuse(fmt::format("the model has byte_fallback, and no token {}", name));
    }
  }
  std::uint32_t rank = 0;
  for (const auto& [left, right] : merges) {
    const auto a = encoder.vocab_.find(left), b = encoder.vocab_.find(right),
               joined = encoder.vocab_.find(left + right);
    if (a == encoder.vocab_.end() || b == encoder.vocab_.end() || joined == encoder.vocab_.end()) {
      return refuse(fmt::format("merge {} of '{}' and '{}' has a part or a result that is no token", rank,
                                printable(cut_text(left, 40)), printable(cut_text(right, 40))));
    }
    encoder.merges_[key_of(a->second, b->second)] = {rank++, joined->second};
  }
  return encoder;
}

const BytePairEncoder::Merge* BytePairEncoder::merge_of(TokenId left, TokenId right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

Status BytePairEncoder::add_symbols(std::string_view piece, std::vector<TokenId>& ids) const {
  ids.reserve(piece.size());
  while (!piece.empty()) {
    const std::size_t bytes = alphabet_ == Alphabet::kBytes ? 1 : std::max<std::size_t>(1, character_bytes(piece));
    const auto whole = alphabet_ == Alphabet::kBytes ? vocab_.end() : vocab_.find(std::string(piece.substr(0, bytes)));
    if (whole != vocab_.end()) {
      ids.push_back(whole->second);
    } else {
      for (const char c : piece.substr(0, bytes)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte_ids_[byte] == kNoToken) {
          return fail(Errc::kInvalidArgument, Op::kEncode, fmt::format("tokenizer: byte {:#04x} has no token", byte));
        }
        ids.push_back(byte_ids_[byte]);
      }
    }
    piece.remove_prefix(bytes);
  }
  return {};
}

Status BytePairEncoder::encode(std::string_view piece, std::vector<TokenId>& ids) const {
  if (ignore_merges_) {
    if (const auto whole = vocab_.find(std::string(piece)); whole != vocab_.end()) {
      ids.push_back(whole->second);
      return {};
    }
  }
  if (piece.size() > std::numeric_limits<int>::max()) {
    return fail(Errc::kTooLarge, Op::kEncode, fmt::format("tokenizer: a piece of text of {} bytes", piece.size()));
  }
  std::vector<TokenId> tokens;
  WC_TRY(add_symbols(piece, tokens));
  const int n = static_cast<int>(tokens.size());
  std::vector<Symbol> symbols(tokens.size());
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](int left) {
    if (left < 0 || symbols[left].next < 0) return;
    const TokenId left_id = symbols[left].id, right_id = symbols[symbols[left].next].id;
    if (const Merge* merge = merge_of(left_id, right_id)) {
      candidates.push({merge->rank, left, left_id, right_id, merge->id});
    }
  };
  for (int i = 0; i < n; ++i) symbols[i] = {tokens[i], i - 1, i + 1 < n ? i + 1 : -1, false};
  for (int i = 0; i + 1 < n; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.left];
    if (left.gone || left.next < 0 || left.id != best.left_id) continue;
    Symbol& right = symbols[left.next];
    if (right.id != best.right_id) continue;
    left.id = best.id;
    right.gone = true;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (int i = 0; i >= 0 && i < n; i = symbols[i].next) ids.push_back(symbols[i].id);
  return {};
}

}  // namespace weightcast
