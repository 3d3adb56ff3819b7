#include "worker/serve/version_wanted.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kDigestDigitsMin = 8, kDigestDigitsMax = 64;
constexpr std::string_view kTheta = "theta_", kNewest = "theta_e";

Error wrong(std::string why) { return fail(Errc::kInvalidArgument, Op::kParse, std::move(why)); }

/// Absent and null are the same.
const Json* present(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

/// Absent unless all of it is digits of a 64-bit number.
std::optional<Version> parse_version(std::string_view text) {
  const auto number = parse_number<std::uint64_t>(text);
  return number ? std::optional(Version{*number}) : std::nullopt;
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
    wanted.number = parse_version(text);
    if (!wanted.number && text.starts_with(kTheta)) {
      wanted.naming = VersionNaming::kTheta;
      wanted.number = parse_version(std::string_view(text).substr(kTheta.size()));
    }
    if (wanted.number) return std::optional(wanted);
    if (text == kNewest || is_digest(text)) {
      if (wanted.gap_max > 0) return wrong("'version_gap_max' goes with a 'param_version' that is a number");
      if (text == kNewest) return std::optional(wanted);
      wanted.naming = VersionNaming::kDigest;
      wanted.digest = text;
      return std::optional(wanted);
    }
  }
  return wrong(
      fmt::format("'param_version' is a whole number, the same behind \"{}\", \"{}\" for the newest one, or {} to {} "
                  "hexadecimal digits of a digest",
                  kTheta, kNewest, kDigestDigitsMin, kDigestDigitsMax));
}

VersionFit fit(const VersionWanted& wanted, Version here, std::string_view digest) {
  // The newest one is whichever there is: its digest has no digits.
  if (!wanted.number) return digest.starts_with(wanted.digest) ? VersionFit::kFits : VersionFit::kNotYet;
  const std::uint64_t number = wanted.number->value;
  if (number > here.value) return number - here.value > wanted.gap_max ? VersionFit::kNotYet : VersionFit::kFits;
  return here.value - number > wanted.gap_max ? VersionFit::kTooNew : VersionFit::kFits;
}

std::string to_string(const VersionWanted& wanted) {
  if (wanted.number) return std::to_string(wanted.number->value);
  return wanted.digest.empty() ? "the newest one" : "the one with digest " + wanted.digest;
}

Json version_json(VersionNaming naming, Version version, std::string_view digest) {
  switch (naming) {
    case VersionNaming::kNumber: break;
    case VersionNaming::kTheta: return std::string(kTheta) + std::to_string(version.value);
    case VersionNaming::kDigest: return digest;
  }
  return version.value;
}

}  // namespace weightcast
