#include "trainer/model/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/digest/content_digest.h"
#include "base/json_text.h"
#include "trainer/model/tokenizer/added_tokens.h"
#include "trainer/model/tokenizer/byte_level.h"
#include "trainer/model/tokenizer/normalizer.h"
#include "trainer/model/tokenizer/post_processor.h"
#include "trainer/model/tokenizer/pre_tokenizer.h"
#include "trainer/model/tokenizer/text_decoder.h"
#include "trainer/model/tokenizer/tokenizer_json.h"
#include "trainer/model/tokenizer/unicode_text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr TokenId kIdMax = 1 << 24;
// Models leave some hundreds of ids without tokens at the end. The file's own length bounds all tables by id.
constexpr std::size_t kIdsSpare = 1 << 16;
constexpr std::size_t kIdsPerToken = 16;

Result<TokenId> read_id(const Json& json, std::string_view of, TokenId id_max) {
  if (!json.is_number_integer() || json.get<std::int64_t>() < 0 || json.get<std::int64_t>() > id_max) {
    return invalid_tokenizer(
        fmt::format("the id of '{}' is {}, not one of 0 to {}", shown_text(of), shown_text(json_text(json)), id_max));
  }
  return json.get<TokenId>();
}

/// What the encoder calls a token that the file writes as `content`: with a byte-level alphabet its bytes.
std::string symbol_of(const std::string& content, BytePairEncoder::Alphabet alphabet) {
  if (alphabet == BytePairEncoder::Alphabet::kCharacters) return content;
  return bytes_of_byte_level(content).value_or(content);
}

Result<std::vector<std::pair<std::string, std::string>>> read_merges(const Json& json,
                                                                     BytePairEncoder::Alphabet alphabet) {
  if (!json.is_array()) return invalid_tokenizer("model.merges is no array");
  const auto pair_of = [&](const std::string& left, const std::string& right) {
    return std::pair(symbol_of(left, alphabet), symbol_of(right, alphabet));
  };
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(json.size());
  for (const Json& merge : json) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.push_back(pair_of(merge[0].get<std::string>(), merge[1].get<std::string>()));
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t space = text.find(' ');
    if (space == std::string::npos) {
      return invalid_tokenizer(fmt::format("model.merges[{}] is no pair of tokens", merges.size()));
    }
    merges.push_back(pair_of(text.substr(0, space), text.substr(space + 1)));
  }
  return merges;
}

Result<AddedToken> read_added_token(const Json& json, TokenId id_max) {
  const Json& content = json_member(json, "content");
  if (!content.is_string() || content.get<std::string>().empty())
    return invalid_tokenizer("an added token has no content");
  AddedToken token;
  token.content = content.get<std::string>();
  WC_ASSIGN(token.id, read_id(json_member(json, "id"), token.content, id_max));
  if (json_flag(json, "single_word")) {
    return unsupported_tokenizer(fmt::format("added token '{}' with single_word", shown_text(token.content)));
  }
  token.lstrip = json_flag(json, "lstrip");
  token.rstrip = json_flag(json, "rstrip");
  token.special = json_flag(json, "special");
  token.normalized = json_flag(json, "normalized", !token.special);
  return token;
}

/// What stands for an added token in normalised text, where it is looked for there.
std::string written_content(const AddedToken& token, const Normalizer& normalizer) {
  const bool is_text = valid_utf8_prefix(token.content) == static_cast<std::ptrdiff_t>(token.content.size());
  return token.normalized && is_text ? normalizer.apply(token.content, true, true) : token.content;
}

/// What goes together: bytes all along, or characters with byte_fallback.
Result<BytePairEncoder::Alphabet> read_alphabet(const Json& model, const PreTokenizer& pre_tokenizer,
                                                const TextDecoder& decoder) {
  if (!json_flag(model, "byte_fallback")) {
    if (json_flag(model, "fuse_unk")) return unsupported_tokenizer("model with fuse_unk, without byte_fallback");
    if (!pre_tokenizer.is_byte_level()) {
      return unsupported_tokenizer("neither ByteLevel in pre_tokenizer nor byte_fallback in model");
    }
    if (!decoder.is_byte_level()) return unsupported_tokenizer("no ByteLevel in decoder");
    return BytePairEncoder::Alphabet::kBytes;
  }
  if (pre_tokenizer.is_byte_level() || pre_tokenizer.has_patterns()) {
    return unsupported_tokenizer("model with byte_fallback and a pre_tokenizer that is not Metaspace");
  }
  if (decoder.is_byte_level()) return unsupported_tokenizer("model with byte_fallback, and no ByteFallback in decoder");
  return BytePairEncoder::Alphabet::kCharacters;
}

}  // namespace

struct Tokenizer::State {
  struct Piece {
    std::string bytes;
    bool known = false;
    bool special = false;
  };

  State(BytePairEncoder bpe, std::vector<AddedToken> added_tokens, Normalizer normalizer_, PreTokenizer pre_tokenizer_)
      : encoder(std::move(bpe)),
        added(std::move(added_tokens)),
        normalizer(std::move(normalizer_)),
        pre_tokenizer(std::move(pre_tokenizer_)),
        raw_finder(added, false),
        normalized_finder(normalized(added, normalizer), true) {}

  /// Those that are looked for in normalised text are normalised, too.
  static std::vector<AddedToken> normalized(std::vector<AddedToken> tokens, const Normalizer& by) {
    for (AddedToken& token : tokens) token.content = written_content(token, by);
    return tokens;
  }

  /// Text between added tokens, valid UTF-8. `is_first`: nothing comes before it.
  Status encode_text(std::string text, bool is_first, std::vector<TokenId>& ids) const {
    std::vector<std::string_view> words;
    WC_TRY(pre_tokenizer.split(text, is_first, words));
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

  /// Text without those added tokens that are looked for before it is normalised. `begins`: an added token is before
  /// it, or nothing; `is_first`: nothing.
  Status encode_stretch(std::string_view text, const TokenizeOptions& options, bool begins, bool is_first,
                        std::vector<TokenId>& ids) const {
    const std::string normal = normalizer.apply(text, options.normalize, begins);
    for (const TextPart& part : normalized_finder.split(normal, !options.special_tokens)) {
      if (part.token) {
        ids.push_back(*part.token);
      } else {
        WC_TRY(encode_text(std::string(part.text), is_first && part.text.data() == normal.data(), ids));
      }
    }
    return {};
  }

  BytePairEncoder encoder;
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  AddedTokenFinder raw_finder, normalized_finder;
  SurroundingTokens surrounding;
  std::size_t spaces_left_out = 0;  // where a text begins
  std::vector<Piece> pieces;        // by id
  std::string digest;
};

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json) {
  const Json json = parse_json(tokenizer_json);
  if (!json.is_object()) return invalid_tokenizer("tokenizer.json is no JSON object; it may be cut off");
  const Json& model = json_member(json, "model");
  if (const std::string type = json_type(model); type != "BPE" && json_member(model, "merges").is_null()) {
    return unsupported_tokenizer(fmt::format("model {}; there is BPE", shown_text(type)));
  }
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = json_member(model, name);
    if (!value.is_null() && value != "") return unsupported_tokenizer(fmt::format("model with {}", name));
  }
  WC_ASSIGN(PreTokenizer pre_tokenizer, PreTokenizer::read(json_member(json, "pre_tokenizer")));
  WC_ASSIGN(const TextDecoder decoder, TextDecoder::read(json_member(json, "decoder")));
  WC_ASSIGN(const BytePairEncoder::Alphabet alphabet, read_alphabet(model, pre_tokenizer, decoder));

  const Json& vocab_json = json_member(model, "vocab");
  if (!vocab_json.is_object()) return invalid_tokenizer("model.vocab is no object");
  const std::size_t tokens = vocab_json.size() + json_member(json, "added_tokens").size();
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
    if (static_cast<std::size_t>(id) < pieces.size() && pieces[static_cast<std::size_t>(id)].known) {
      return invalid_tokenizer(
          fmt::format("two tokens of model.vocab have the id {}, one is '{}'", id, shown_text(token)));
    }
    place(id, decoder.bytes_of(token), false);
    vocab.emplace(symbol_of(token, alphabet), id);
  }
  WC_ASSIGN(const auto merges, read_merges(json_member(model, "merges"), alphabet));
  WC_ASSIGN(BytePairEncoder encoder,
            BytePairEncoder::make(std::move(vocab), merges, json_flag(model, "ignore_merges"), alphabet));
  WC_ASSIGN(Normalizer normalizer, Normalizer::read(json_member(json, "normalizer")));
  std::vector<AddedToken> added;
  if (const Json& list = json_member(json, "added_tokens"); list.is_array()) {
    for (const Json& one : list) {
      WC_ASSIGN(AddedToken token, read_added_token(one, id_max));
      const std::string written = written_content(token, normalizer);
      place(token.id, decoder.is_byte_level() ? written : decoder.bytes_of(written), token.special);
      added.push_back(std::move(token));
    }
  }
  WC_ASSIGN(SurroundingTokens surrounding, read_post_processor(json_member(json, "post_processor"), id_max));
  for (const std::vector<TokenId>* side : {&surrounding.before, &surrounding.after}) {
    for (const TokenId id : *side) {
      if (static_cast<std::size_t>(id) >= pieces.size() || !pieces[static_cast<std::size_t>(id)].known) {
        return invalid_tokenizer(fmt::format("post_processor has the id {}, which is no token", id));
      }
    }
  }

  auto state =
      std::make_unique<State>(std::move(encoder), std::move(added), std::move(normalizer), std::move(pre_tokenizer));
  state->surrounding = std::move(surrounding);
  state->spaces_left_out = decoder.spaces_left_out();
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
  if (options.surround) ids = state_->surrounding.before;
  for (const TextPart& part : state_->raw_finder.split(text, !options.special_tokens)) {
    if (part.token) {
      ids.push_back(*part.token);
      continue;
    }
    for (std::string_view rest = part.text; !rest.empty();) {
      const std::ptrdiff_t valid = valid_utf8_prefix(rest);
      const auto bytes = static_cast<std::size_t>(std::abs(valid));
      if (valid > 0) {
        WC_TRY(state_->encode_stretch(rest.substr(0, bytes), options, rest.data() == part.text.data(),
                                      rest.data() == text.data(), ids));
      } else {
        WC_TRY(state_->encoder.encode(rest.substr(0, bytes), ids));
      }
      rest.remove_prefix(bytes);
    }
  }
  if (options.surround) ids.insert(ids.end(), state_->surrounding.after.begin(), state_->surrounding.after.end());
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    if (ids[i] < 0 || id >= state_->pieces.size() || !state_->pieces[id].known) {
      return fail(Errc::kInvalidArgument, Op::kDecode,
                  fmt::format("tokenizer: ids[{}] is {}, which is no token (the vocabulary has {})", i, ids[i],
                              state_->pieces.size()));
    }
    if (!options.skip_special_tokens || !state_->pieces[id].special) text += state_->pieces[id].bytes;
  }
  std::size_t spaces = 0;
  while (options.begins && spaces < state_->spaces_left_out && spaces < text.size() && text[spaces] == ' ') ++spaces;
  return spaces == 0 ? text : text.substr(spaces);
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
