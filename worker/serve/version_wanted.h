#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace weightcast {

/// How a call names versions: its answer names them so, too.
enum class VersionNaming : std::uint8_t {
  kNumber,  ///< 7 or "7"
  kTheta,   ///< "theta_7": as ECHO writes it (arXiv 2508.05387); "theta_e" is the newest that the worker has
  kDigest,  ///< "1f00ba12": the first hexadecimal digits of the snapshot's digest, at least 8
};

/// The version under which a call wants to be answered.
struct VersionWanted {
  VersionNaming naming = VersionNaming::kNumber;
  std::optional<Version> number;  ///< absent: by digest, or the newest
  std::string digest;
  std::uint64_t gap_max = 0;  ///< by how much a number may differ
};

enum class VersionFit : std::uint8_t {
  kFits,
  kNotYet,  ///< an older one, or one with another digest: the right one may come
  kTooNew,  ///< versions only grow
};

/// Of ECHO's calls: `param_version`, a number or a text, and `version_gap_max`. Nothing where the call names no
/// version. Errors: kInvalidArgument, which names the member.
[[nodiscard]] Result<std::optional<VersionWanted>> read_version_wanted(const nlohmann::json& call);

/// How a version with that digest ("" if nobody knows it) suits the call.
[[nodiscard]] VersionFit fit(const VersionWanted& wanted, Version here, std::string_view digest);

/// "7", "the newest one", or "the one with digest 1f00ba12".
[[nodiscard]] std::string to_string(const VersionWanted& wanted);

/// `version`, which has that digest, as a call with that naming says it: 7, "theta_7", or the digest.
[[nodiscard]] nlohmann::json version_json(VersionNaming naming, Version version, std::string_view digest);

}  // namespace weightcast
