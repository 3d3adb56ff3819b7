#include "trainer/model/tokenizer/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

}  // namespace

Error invalid_tokenizer(std::string why) {
  return fail(Errc::kInvalidArgument, Op::kParse, "tokenizer: " + std::move(why));
}

Error unsupported_tokenizer(std::string why) {
  return fail(Errc::kUnsupported, Op::kParse, "tokenizer: " + std::move(why));
}

const Json& json_member(const Json& json, const char* name) {
  static const Json null;
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found == json.end() ? null : *found;
}

std::string json_type(const Json& json) {
  const Json& type = json_member(json, "type");
  return type.is_string() ? type.get<std::string>() : json.is_null() ? "none" : "of no type";
}

bool json_flag(const Json& json, const char* name, bool otherwise) {
  const Json& value = json_member(json, name);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

std::string json_text_of(const Json& json, const char* name) {
  const Json& value = json_member(json, name);
  return value.is_string() ? value.get<std::string>() : "";
}

std::string shown_text(std::string_view text) { return printable(cut_text(text, 60)); }

}  // namespace weightcast
