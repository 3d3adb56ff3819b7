#include "model/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/content_digest.h"
#include "base/json_text.h"
#include "base/text.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/splitter.h"
#include "model/tokenizer/unicode_text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

// GPT-2's pattern, which a ByteLevel pre-tokeniser uses by itself.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr TokenId kIdMax = 1 << 24;
// Models leave some hundreds of ids without tokens at the end. The file's own length bounds all tables by id.
constexpr std::size_t kIdsSpare = 1 << 16;
constexpr std::size_t kIdsPerToken = 16;
constexpr std::size_t kSplittersMax = 32;

Error invalid(std::string why) { return fail(Errc::kInvalidArgument, Op::kParse, "tokenizer: " + std::move(why)); }
Error unsupported(std::string why) { return fail(Errc::kUnsupported, Op::kParse, "tokenizer: " + std::move(why)); }

/// `json[name]`, or null if it is not there.
const Json& member(const Json& json, const char* name) {
  static const Json null;
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found == json.end() ? null : *found;
}

std::string type_of(const Json& json) {
  const Json& type = member(json, "type");
  return type.is_string() ? type.get<std::string>() : json.is_null() ? "none" : "of no type";
}

bool flag(const Json& json, const char* name, bool otherwise = false) {
  const Json& value = member(json, name);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

std::string shown(std::string_view text) { return printable(cut_text(text, 60)); }

Result<TokenId> read_id(const Json& json, std::string_view of, TokenId id_max) {
  if (!json.is_number_integer() || json.get<std::int64_t>() < 0 || json.get<std::int64_t>() > id_max) {
    return invalid(fmt::format("the id of '{}' is {}, not one of 0 to {}", shown(of), shown(json_text(json)), id_max));
  }
  return json.get<TokenId>();
}

/// A token's bytes: what is not of the byte-level table stands for itself.
std::string bytes_of(const std::string& token) { return bytes_of_byte_level(token).value_or(token); }

Result<std::vector<std::pair<std::string, std::string>>> read_merges(const Json& json) {
  if (!json.is_array()) return invalid("model.merges is no array");
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(json.size());
  for (const Json& merge : json) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(bytes_of(merge[0].get<std::string>()), bytes_of(merge[1].get<std::string>()));
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t space = text.find(' ');
    if (space == std::string::npos) {
      return invalid(fmt::format("model.merges[{}] is no pair of tokens", merges.size()));
    }
    merges.emplace_back(bytes_of(text.substr(0, space)), bytes_of(text.substr(space + 1)));
  }
  return merges;
}

Result<bool> read_normalizer(const Json& json) {
  if (json.is_null()) return false;
  if (type_of(json) == "NFC") return true;
  const Json& inner = member(json, "normalizers");
  if (type_of(json) == "Sequence" && inner.is_array() && inner.size() <= 1) {
    return inner.empty() ? Result<bool>(false) : read_normalizer(inner[0]);
  }
  return unsupported(fmt::format("normalizer {}; there are NFC and none", shown(type_of(json))));
}

Status read_pre_tokenizer(const Json& json, std::vector<Splitter>& splitters) {
  if (splitters.size() > kSplittersMax) return unsupported(fmt::format("more than {} patterns", kSplittersMax));
  const std::string type = type_of(json);
  if (type == "Sequence" && member(json, "pretokenizers").is_array()) {
    for (const Json& inner : member(json, "pretokenizers")) WC_TRY(read_pre_tokenizer(inner, splitters));
    return {};
  }
  if (type == "ByteLevel") {
    if (flag(json, "add_prefix_space")) return unsupported("pre_tokenizer ByteLevel with add_prefix_space");
    if (!flag(json, "use_regex", true)) return {};
    WC_ASSIGN(Splitter splitter, Splitter::make(kByteLevelPattern));
    splitters.push_back(std::move(splitter));
    return {};
  }
  const Json& pattern = member(member(json, "pattern"), "Regex");
  if (type == "Split" && pattern.is_string() && member(json, "behavior") == "Isolated" && !flag(json, "invert")) {
    WC_ASSIGN(Splitter splitter, Splitter::make(pattern.get<std::string>()));
    splitters.push_back(std::move(splitter));
    return {};
  }
  return unsupported(fmt::format(
      "pre_tokenizer {}; there are ByteLevel, Split by a Regex with behavior Isolated, and Sequence", shown(type)));
}

bool has_byte_level(const Json& json) {
  if (type_of(json) == "ByteLevel") return true;
  for (const char* list : {"pretokenizers", "decoders"}) {
    for (const Json& inner : member(json, list)) {
      if (has_byte_level(inner)) return true;
    }
  }
  return false;
}

Result<AddedToken> read_added_token(const Json& json, TokenId id_max) {
  const Json& content = member(json, "content");
  if (!content.is_string() || content.get<std::string>().empty()) return invalid("an added token has no content");
  AddedToken token;
  token.content = content.get<std::string>();
  WC_ASSIGN(token.id, read_id(member(json, "id"), token.content, id_max));
  if (flag(json, "single_word")) {
    return unsupported(fmt::format("added token '{}' with single_word", shown(token.content)));
  }
  token.lstrip = flag(json, "lstrip");
  token.rstrip = flag(json, "rstrip");
  token.special = flag(json, "special");
  token.normalized = flag(json, "normalized", !token.special);
  return token;
}

}  // namespace

struct Tokenizer::State {
  struct Piece {
    std::string bytes;
    bool known = false;
    bool special = false;
  };

  State(BytePairEncoder bpe, std::vector<AddedToken> added_tokens, bool nfc_, std::vector<Splitter> splitters_)
      : encoder(std::move(bpe)),
        added(std::move(added_tokens)),
        raw_finder(added, false),
        normalized_finder(added, true),
        nfc(nfc_),
        splitters(std::move(splitters_)) {}

  /// Text between added tokens, valid UTF-8.
  Status encode_text(std::string_view text, std::vector<TokenId>& ids) const {
    std::vector<std::string_view> words{text}, cut;
    for (const Splitter& splitter : splitters) {
      cut.clear();
      for (const std::string_view word : words) WC_TRY(splitter.split(word, cut));
      words.swap(cut);
    }
    // The same words come again and again: their tokens are copied.
    std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> seen;
    for (const std::string_view word : words) {
      const auto [known, is_new] = seen.try_emplace(word, ids.size(), 0);
      if (is_new) {
        WC_TRY(encoder.encode(word, ids));
        known->second.second = ids.size();
        continue;
      }
      const auto [begin, end] = known->second;
      for (std::size_t i = begin; i < end; ++i) ids.push_back(ids[i]);
    }
    return {};
  }

  /// Text without those added tokens that are looked for before it is normalised.
  Status encode_stretch(std::string_view text, const TokenizeOptions& options, std::vector<TokenId>& ids) const {
    const std::string normal = nfc && options.normalize ? to_nfc(text) : std::string(text);
    for (const TextPart& part : normalized_finder.split(normal, !options.special_tokens)) {
      if (part.token) {
        ids.push_back(*part.token);
      } else {
        WC_TRY(encode_text(part.text, ids));
      }
    }
    return {};
  }

  BytePairEncoder encoder;
  std::vector<AddedToken> added;
  AddedTokenFinder raw_finder, normalized_finder;
  bool nfc = false;
  std::vector<Splitter> splitters;
  std::vector<Piece> pieces;  // by id
  std::string digest;
};

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  const Json json = parse_json(tokenizer_json);
  if (!json.is_object()) return invalid("tokenizer.json is no JSON object; it may be cut off");
  const Json& model = member(json, "model");
  if (const std::string type = type_of(model); type != "BPE" && member(model, "merges").is_null()) {
    return unsupported(fmt::format("model {}; there is BPE", shown(type)));
  }
  for (const char* name : {"byte_fallback", "fuse_unk"}) {
    if (flag(model, name)) return unsupported(fmt::format("model with {}", name));
  }
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = member(model, name);
    if (!value.is_null() && value != "") return unsupported(fmt::format("model with {}", name));
  }
  if (!has_byte_level(member(json, "pre_tokenizer"))) return unsupported("no ByteLevel in pre_tokenizer");
  if (!has_byte_level(member(json, "decoder"))) return unsupported("no ByteLevel in decoder");

  const Json& vocab_json = member(model, "vocab");
  if (!vocab_json.is_object()) return invalid("model.vocab is no object");
  const std::size_t tokens = vocab_json.size() + member(json, "added_tokens").size();
  const auto id_max = static_cast<TokenId>(std::min<std::size_t>(kIdMax, kIdsSpare + kIdsPerToken * tokens));
  std::unordered_map<std::string, TokenId> vocab;
  vocab.reserve(vocab_json.size());
  std::vector<State::Piece> pieces;
  const auto place = [&](TokenId id, std::string bytes, bool special) {
    if (static_cast<std::size_t>(id) >= pieces.size()) pieces.resize(static_cast<std::size_t>(id) + 1);
    pieces[static_cast<std::size_t>(id)] = {std::move(bytes), true, special};
  };
  for (const auto& [token, id_json] : vocab_json.items()) {
    WC_ASSIGN(const TokenId id, read_id(id_json, token, id_max));
    const std::string bytes = bytes_of(token);
    if (static_cast<std::size_t>(id) < pieces.size() && pieces[static_cast<std::size_t>(id)].known) {
      return invalid(fmt::format("two tokens of model.vocab have the id {}, one is '{}'", id, shown(token)));
    }
    place(id, bytes, false);
    vocab.emplace(bytes, id);
  }
  WC_ASSIGN(const auto merges, read_merges(member(model, "merges")));
  WC_ASSIGN(BytePairEncoder encoder, BytePairEncoder::make(std::move(vocab), merges, flag(model, "ignore_merges")));
  std::vector<AddedToken> added;
  if (const Json& list = member(json, "added_tokens"); list.is_array()) {
    for (const Json& one : list) {
      WC_ASSIGN(AddedToken token, read_added_token(one, id_max));
      place(token.id, token.content, token.special);
      added.push_back(std::move(token));
    }
  }
  WC_ASSIGN(const bool nfc, read_normalizer(member(json, "normalizer")));
  std::vector<Splitter> splitters;
  WC_TRY(read_pre_tokenizer(member(json, "pre_tokenizer"), splitters));

  auto state = std::make_unique<State>(std::move(encoder), std::move(added), nfc, std::move(splitters));
  state->pieces = std::move(pieces);
  state->digest = content_digest_of(std::as_bytes(std::span(tokenizer_json))).hex();
  return Tokenizer(std::move(state));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, const TokenizeOptions& options) const {
  if (text.size() > kTextBytesMax) {
    return fail(Errc::kTooLarge, Op::kEncode,
                fmt::format("tokenizer: a text of {} bytes; at most {}", text.size(), kTextBytesMax));
  }
  std::vector<TokenId> ids;
  for (const TextPart& part : state_->raw_finder.split(text, !options.special_tokens)) {
    if (part.token) {
      ids.push_back(*part.token);
      continue;
    }
    for (std::string_view rest = part.text; !rest.empty();) {
      const std::ptrdiff_t valid = valid_utf8_prefix(rest);
      const auto bytes = static_cast<std::size_t>(std::abs(valid));
      if (valid > 0) {
        WC_TRY(state_->encode_stretch(rest.substr(0, bytes), options, ids));
      } else {
        WC_TRY(state_->encoder.encode(rest.substr(0, bytes), ids));
      }
      rest.remove_prefix(bytes);
    }
  }
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    if (ids[i] < 0 || id >= state_->pieces.size() || !state_->pieces[id].known) {
      return fail(Errc::kInvalidArgument, Op::kDecode,
                  fmt::format("tokenizer: ids[{}] is {}, which is no token (the vocabulary has {})", i, ids[i],
                              state_->pieces.size()));
    }
    if (!skip_special_tokens || !state_->pieces[id].special) text += state_->pieces[id].bytes;
  }
  return text;
}

TokenId Tokenizer::vocab_size() const { return static_cast<TokenId>(state_->pieces.size()); }

std::optional<TokenId> Tokenizer::added_token(std::string_view content) const {
  for (const AddedToken& token : state_->added) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

const std::string& Tokenizer::digest() const { return state_->digest; }

std::string byte_tokenizer_json() {
  Json vocab = Json::object(), added = Json::array();
  for (unsigned byte = 0; byte < 256; ++byte) vocab[byte_level_character(static_cast<unsigned char>(byte))] = byte;
  unsigned id = 256;
  for (const char* content : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    added.push_back({{"id", id++},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  return json_text({{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", added},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", byte_level},
                    {"post_processor", nullptr},
                    {"decoder", byte_level},
                    {"model",
                     {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", false},
                      {"vocab", vocab},
                      {"merges", Json::array()}}}},
                   1);
}

}  // namespace weightcast
