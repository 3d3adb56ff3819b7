#include "trainer/model/tokenizer/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/model/tokenizer/tokenizer_json.h"
#include "trainer/model/tokenizer/unicode_text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

// Published files have two steps. One of them makes three bytes of a space.
constexpr std::size_t kStepsMax = 8;
constexpr std::size_t kGrowthMax = 4;
constexpr std::size_t kPrependBytesMax = 64;

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t found = text.find(from); found != std::string_view::npos; found = text.find(from)) {
    result.append(text.substr(0, found)).append(to);
    text.remove_prefix(found + from.size());
  }
  return result.append(text);
}

Result<Normalizer> Normalizer::read(const Json& json) {
  Normalizer normalizer;
  WC_TRY(normalizer.add(json));
  return normalizer;
}

Status Normalizer::add(const Json& json) {
  if (json.is_null()) return {};
  const std::string type = json_type(json);
  const Json& inner = json_member(json, "normalizers");
  if (type == "Sequence" && inner.is_array()) {
    for (const Json& one : inner) WC_TRY(add(one));
    return {};
  }
  Step step;
  if (type == "Prepend") {
    step = {Step::Kind::kPrepend, "", json_text_of(json, "prepend")};
  } else if (type == "Replace") {
    step = {Step::Kind::kReplace, json_text_of(json_member(json, "pattern"), "String"), json_text_of(json, "content")};
    if (step.from.empty()) return unsupported_tokenizer("normalizer Replace of anything but a String");
  } else if (type != "NFC") {
    return unsupported_tokenizer(fmt::format(
        "normalizer {}; there are NFC, Prepend, Replace of a String, Sequence of these, and none", shown_text(type)));
  }
  if (step.kind == Step::Kind::kReplace)
    growth_ *= std::max<std::size_t>(1, (step.to.size() + step.from.size() - 1) / step.from.size());
  const bool is_long = step.kind == Step::Kind::kPrepend && step.to.size() > kPrependBytesMax;
  if (steps_.size() == kStepsMax || growth_ > kGrowthMax || is_long) {
    return unsupported_tokenizer(fmt::format(
        "normalizer of more than {} steps, one that makes text more than {} times as long, or Prepend of over {} bytes",
        kStepsMax, kGrowthMax, kPrependBytesMax));
  }
  steps_.push_back(std::move(step));
  return {};
}

std::string Normalizer::apply(std::string_view text, bool compose, bool begins) const {
  std::string result(text);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Step::Kind::kCompose:
        if (compose) result = to_nfc(result);
        break;
      case Step::Kind::kPrepend:
        if (begins && !result.empty()) result.insert(0, step.to);
        break;
      case Step::Kind::kReplace: result = replace_all(result, step.from, step.to); break;
    }
  }
  return result;
}

}  // namespace weightcast
