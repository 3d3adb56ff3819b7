#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"

namespace weightcast {

/// The version under which a call wants to be answered: a number, or the digest of the snapshot.
struct VersionWanted {
  std::optional<Version> number;
  std::string digest;         ///< without a number: its first hexadecimal digits, at least 8
  std::uint64_t gap_max = 0;  ///< by how much a number may differ
};

enum class VersionFit : std::uint8_t {
  kFits,
  kNotYet,  ///< an older one, or one with another digest: the right one may come
  kTooNew,  ///< versions only grow
};

/// Of ECHO's calls: `param_version`, a number or text, and `version_gap_max`. Nothing where the call names no version.
/// Errors: kInvalidArgument, which names the member.
[[nodiscard]] Result<std::optional<VersionWanted>> read_version_wanted(const nlohmann::json& call);

/// How a version with that digest ("" if nobody knows it) suits the call.
[[nodiscard]] VersionFit fit(const VersionWanted& wanted, Version here, std::string_view digest);

/// "7", or "the one with digest 1f00ba12".
[[nodiscard]] std::string to_string(const VersionWanted& wanted);

}  // namespace weightcast
