#include "trainer/model/tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/model/tokenizer/normalizer.h"
#include "trainer/model/tokenizer/tokenizer_json.h"
#include "trainer/model/tokenizer/unicode_text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

// GPT-2's pattern, which a ByteLevel pre-tokeniser uses by itself.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::size_t kSplittersMax = 32;

}  // namespace

Result<PreTokenizer> PreTokenizer::read(const Json& json) {
  PreTokenizer pre_tokenizer;
  if (!json.is_null()) WC_TRY(pre_tokenizer.add(json));
  if (pre_tokenizer.metaspace_ && (pre_tokenizer.is_byte_level_ || !pre_tokenizer.splitters_.empty())) {
    return unsupported_tokenizer("pre_tokenizer Metaspace beside another one");
  }
  return pre_tokenizer;
}

Status PreTokenizer::add(const Json& json) {
  if (splitters_.size() > kSplittersMax) {
    return unsupported_tokenizer(fmt::format("more than {} patterns", kSplittersMax));
  }
  const std::string type = json_type(json);
  if (type == "Sequence" && json_member(json, "pretokenizers").is_array()) {
    for (const Json& inner : json_member(json, "pretokenizers")) WC_TRY(add(inner));
    return {};
  }
  if (type == "Metaspace") return add_metaspace(json);
  if (type == "ByteLevel") {
    if (json_flag(json, "add_prefix_space")) {
      return unsupported_tokenizer("pre_tokenizer ByteLevel with add_prefix_space");
    }
    is_byte_level_ = true;
    if (!json_flag(json, "use_regex", true)) return {};
    WC_ASSIGN(Splitter splitter, Splitter::make(kByteLevelPattern));
    splitters_.push_back(std::move(splitter));
    return {};
  }
  const Json& pattern = json_member(json_member(json, "pattern"), "Regex");
  if (type == "Split" && pattern.is_string() && json_member(json, "behavior") == "Isolated" &&
      !json_flag(json, "invert")) {
    WC_ASSIGN(Splitter splitter, Splitter::make(pattern.get<std::string>()));
    splitters_.push_back(std::move(splitter));
    return {};
  }
  return unsupported_tokenizer(fmt::format(
      "pre_tokenizer {}; there are ByteLevel, Split by a Regex with behavior Isolated, Metaspace, and Sequence",
      shown_text(type)));
}

Status PreTokenizer::add_metaspace(const Json& json) {
  if (metaspace_) return unsupported_tokenizer("pre_tokenizer Metaspace beside another one");
  Metaspace metaspace;
  metaspace.replacement = json_text_of(json, "replacement");
  if (metaspace.replacement.empty() || character_bytes(metaspace.replacement) != metaspace.replacement.size()) {
    return invalid_tokenizer("pre_tokenizer Metaspace: its replacement is not one character");
  }
  metaspace.cuts = json_flag(json, "split", true);
  // Files of older releases have "add_prefix_space" alone.
  const std::string scheme = json_member(json, "prepend_scheme").is_null()
                                 ? (json_flag(json, "add_prefix_space", true) ? "always" : "never")
                                 : json_text_of(json, "prepend_scheme");
  if (scheme == "always") {
    metaspace.prepend = Metaspace::Prepend::kAlways;
  } else if (scheme == "first") {
    metaspace.prepend = Metaspace::Prepend::kFirst;
  } else if (scheme == "never") {
    metaspace.prepend = Metaspace::Prepend::kNever;
  } else {
    return unsupported_tokenizer(fmt::format(
        "pre_tokenizer Metaspace with prepend_scheme {}; there are always, first and never", shown_text(scheme)));
  }
  metaspace_ = std::move(metaspace);
  return {};
}

Status PreTokenizer::split(std::string& text, bool is_first, std::vector<std::string_view>& pieces) const {
  if (metaspace_) {
    const std::string& replacement = metaspace_->replacement;
    text = replace_all(text, " ", replacement);
    const bool asked = metaspace_->prepend == Metaspace::Prepend::kAlways ||
                       (metaspace_->prepend == Metaspace::Prepend::kFirst && is_first);
    if (asked && !text.starts_with(replacement)) text.insert(0, replacement);
  }
  if (metaspace_ && metaspace_->cuts) {
    const std::string& replacement = metaspace_->replacement;
    std::size_t begin = 0;
    for (std::size_t at = text.find(replacement, 1); at != std::string::npos; at = text.find(replacement, at + 1)) {
      pieces.push_back(std::string_view(text).substr(begin, at - begin));
      begin = at;
    }
    pieces.push_back(std::string_view(text).substr(begin));
    return {};
  }
  std::vector<std::string_view> words{text}, cut;
  for (const Splitter& splitter : splitters_) {
    cut.clear();
    for (const std::string_view word : words) WC_TRY(splitter.split(word, cut));
    words.swap(cut);
  }
  pieces.insert(pieces.end(), words.begin(), words.end());
  return {};
}

}  // namespace weightcast
