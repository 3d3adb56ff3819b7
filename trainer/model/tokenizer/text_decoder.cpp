#include "trainer/model/tokenizer/text_decoder.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "trainer/model/tokenizer/byte_level.h"
#include "trainer/model/tokenizer/normalizer.h"
#include "trainer/model/tokenizer/tokenizer_json.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kReplacementsMax = 8;
constexpr std::uint64_t kSpacesMax = 8;

/// The byte that `content` names, if it has the form of byte_fallback_name(), in either case of letters.
std::optional<char> named_byte(std::string_view content) {
  if (content.size() != 6 || !content.starts_with("<0x") || !content.ends_with('>')) return std::nullopt;
  unsigned byte = 0;
  const char* const begin = content.data() + 3;
  const auto [end, error] = std::from_chars(begin, begin + 2, byte, 16);
  if (error != std::errc() || end != begin + 2) return std::nullopt;
  return static_cast<char>(static_cast<unsigned char>(byte));
}

}  // namespace

std::string byte_fallback_name(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

Result<TextDecoder> TextDecoder::read(const Json& json) {
  TextDecoder decoder;
  WC_TRY(decoder.add(json));
  if (decoder.is_byte_level_ == decoder.has_byte_fallback_) {
    return unsupported_tokenizer("decoder with neither ByteLevel nor ByteFallback, or with both");
  }
  if (decoder.is_byte_level_ && (!decoder.replacements_.empty() || decoder.spaces_left_out_ > 0)) {
    return unsupported_tokenizer("decoder ByteLevel beside Replace or Strip");
  }
  return decoder;
}

Status TextDecoder::add(const Json& json) {
  const std::string type = json_type(json);
  if (type == "Sequence" && json_member(json, "decoders").is_array()) {
    for (const Json& inner : json_member(json, "decoders")) WC_TRY(add(inner));
    return {};
  }
  if (type == "ByteLevel") {
    is_byte_level_ = true;
    return {};
  }
  if (type == "ByteFallback" && !is_fused_) {
    has_byte_fallback_ = true;
    return {};
  }
  if (type == "Fuse") {
    is_fused_ = true;
    return {};
  }
  // Of one token alone, and before its name is taken for a byte.
  const std::string replaced = json_text_of(json_member(json, "pattern"), "String");
  if (type == "Replace" && !replaced.empty() && !is_fused_ && !has_byte_fallback_ &&
      replacements_.size() < kReplacementsMax) {
    replacements_.emplace_back(replaced, json_text_of(json, "content"));
    return {};
  }
  const Json& start = json_member(json, "start");
  if (type == "Strip" && is_fused_ && json_text_of(json, "content") == " " && start.is_number_unsigned() &&
      start.get<std::uint64_t>() <= kSpacesMax && json_member(json, "stop") == 0) {
    spaces_left_out_ += start.get<std::size_t>();
    return {};
  }
  return unsupported_tokenizer(
      fmt::format("decoder {}, or its members or place; there are ByteLevel, and Sequence of Replace of a String, "
                  "ByteFallback, Fuse and Strip of up to {} spaces at the start, in this order",
                  shown_text(type), kSpacesMax));
}

std::string TextDecoder::bytes_of(std::string_view content) const {
  if (is_byte_level_) return bytes_of_byte_level(content).value_or(std::string(content));
  std::string text(content);
  for (const auto& [from, to] : replacements_) text = replace_all(text, from, to);
  const std::optional<char> byte = named_byte(text);
  return byte ? std::string(1, *byte) : text;
}

}  // namespace weightcast
