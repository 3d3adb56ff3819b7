#include "trainer/model/tokenizer/post_processor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trainer/model/tokenizer/tokenizer_json.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

// Published files have one.
constexpr std::size_t kTokensMax = 64;

Status read_template(const Json& json, TokenId id_max, SurroundingTokens& tokens) {
  const Json& single = json_member(json, "single");
  if (!single.is_array()) return invalid_tokenizer("post_processor TemplateProcessing: its single is no array");
  bool has_text = false;
  for (const Json& part : single) {
    if (json_text_of(json_member(part, "Sequence"), "id") == "A" && !has_text) {
      has_text = true;
      continue;
    }
    const std::string name = json_text_of(json_member(part, "SpecialToken"), "id");
    const Json& ids = json_member(json_member(json_member(json, "special_tokens"), name.c_str()), "ids");
    if (!ids.is_array() || ids.size() > kTokensMax) {
      return invalid_tokenizer(
          fmt::format("post_processor TemplateProcessing: '{}' is neither the text nor one of its "
                      "special_tokens",
                      shown_text(name)));
    }
    std::vector<TokenId>& side = has_text ? tokens.after : tokens.before;
    for (const Json& id : ids) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > static_cast<std::uint64_t>(id_max) ||
          side.size() == kTokensMax) {
        return invalid_tokenizer(
            fmt::format("post_processor TemplateProcessing: the ids of '{}' are not up to {} of 0 "
                        "to {}",
                        shown_text(name), kTokensMax, id_max));
      }
      side.push_back(id.get<TokenId>());
    }
  }
  if (!has_text) return invalid_tokenizer("post_processor TemplateProcessing: its single has no text");
  return {};
}

Status add(const Json& json, TokenId id_max, SurroundingTokens& tokens) {
  const std::string type = json_type(json);
  if (json.is_null() || type == "ByteLevel") return {};
  if (type == "Sequence" && json_member(json, "processors").is_array()) {
    for (const Json& inner : json_member(json, "processors")) WC_TRY(add(inner, id_max, tokens));
    return {};
  }
  if (type == "TemplateProcessing" && tokens.before.empty() && tokens.after.empty()) {
    return read_template(json, id_max, tokens);
  }
  return unsupported_tokenizer(fmt::format(
      "post_processor {}; there are ByteLevel, one TemplateProcessing, Sequence of these, and none", shown_text(type)));
}

}  // namespace

Result<SurroundingTokens> read_post_processor(const Json& json, TokenId id_max) {
  SurroundingTokens tokens;
  WC_TRY(add(json, id_max, tokens));
  return tokens;
}

}  // namespace weightcast
