#include "worker/serve/version_wanted.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kDigestDigitsMin = 8, kDigestDigitsMax = 64;

Error wrong(std::string why) { return fail(Errc::kInvalidArgument, Op::kParse, std::move(why)); }

/// Absent and null are the same.
const Json* present(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

bool is_digest(std::string_view text) {
  return text.size() >= kDigestDigitsMin && text.size() <= kDigestDigitsMax &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

Result<std::optional<VersionWanted>> read_version_wanted(const Json& call) {
  VersionWanted wanted;
  const Json* gap = present(call, "version_gap_max");
  if (gap != nullptr) {
    if (!gap->is_number_unsigned()) return wrong("'version_gap_max' is no whole number");
    wanted.gap_max = gap->get<std::uint64_t>();
  }
  const Json* version = present(call, "param_version");
  if (version == nullptr) return std::optional<VersionWanted>();
  if (version->is_number_unsigned()) {
    wanted.number = Version{version->get<std::uint64_t>()};
    return std::optional(wanted);
  }
  if (version->is_string()) {
    const auto& text = version->get_ref<const std::string&>();
    // GET /get_weight_version gives the number as a text.
    std::uint64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec == std::errc() && read.ptr == text.data() + text.size()) {
      wanted.number = Version{number};
      return std::optional(wanted);
    }
    if (is_digest(text)) {
      if (wanted.gap_max > 0) return wrong("'version_gap_max' goes with a 'param_version' that is a number");
      wanted.digest = text;
      return std::optional(wanted);
    }
  }
  return wrong(fmt::format("'param_version' is neither a whole number nor {} to {} hexadecimal digits of a digest",
                           kDigestDigitsMin, kDigestDigitsMax));
}

VersionFit fit(const VersionWanted& wanted, Version here, std::string_view digest) {
  if (!wanted.number) return digest.starts_with(wanted.digest) ? VersionFit::kFits : VersionFit::kNotYet;
  const std::uint64_t number = wanted.number->value;
  if (number > here.value) return number - here.value > wanted.gap_max ? VersionFit::kNotYet : VersionFit::kFits;
  return here.value - number > wanted.gap_max ? VersionFit::kTooNew : VersionFit::kFits;
}

std::string to_string(const VersionWanted& wanted) {
  return wanted.number ? std::to_string(wanted.number->value) : "the one with digest " + wanted.digest;
}

}  // namespace weightcast
