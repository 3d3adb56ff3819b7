#pragma once

#include <cstdint>
#include <functional>
#include <set>

#include "transport/core/edge/holdings.h"

namespace weightcast {

/// A patch is worth applying only below this share of the full payload.
inline constexpr double kPatchShareMax = 0.6;
/// A packed payload is worth making only below this share of the full payload.
inline constexpr double kPackedShareMax = 0.9;
/// What BF16 weights become: where nobody has looked at the snapshot itself.
inline constexpr double kPackedShareOfWeights = 0.66;

/// What the origin gives to a worker that is behind.
struct CatchUp {
  PayloadId next{};               ///< what it is to take now; of kNoVersion: nothing leads to the latest version
  std::uint64_t total_bytes = 0;  ///< of `next` and what follows it up to the latest version
  bool make = false;              ///< `next` is to be made first; nothing else is worth beginning
};

struct CatchUpRequest {
  Version installed{};  ///< kNoVersion: nothing
  Version latest{};
  std::uint64_t full_bytes = 0;   ///< what its full payload takes, whether or not that is among the holdings
  bool patches_fit = true;        ///< false: it takes the full payload as it is, and no other
  std::uint32_t patches_max = 0;  ///< in a row
  /// Whether a payload that is not among the holdings can be made, and has not been found useless: a patch by comparing
  /// two snapshots, a full payload by hashing one. Of a packed payload also whether packing is worth it.
  std::function<bool(PayloadId)> can_make;
  /// Older versions whose full payloads are held or being made.
  std::set<Version> whole;
};

/// The path of least bytes from the installed version to the latest: one patch (between two neighbours, or folded over
/// several versions), stored patches in turn, or the full payload. A worker waits for a direct patch that can still be
/// made. Such a patch is as small as any chain, because it carries the latest value of each cell once. The full payload
/// is packed if the origin holds it packed, or can pack it. If the origin would have to hash the latest version first,
/// the newest older full payload with stored patches in turn from there takes its place, as long as these patches are
/// small. Pure.
[[nodiscard]] CatchUp choose_payload(const Holdings& holdings, const CatchUpRequest& request);

/// The stored patches of `holdings` that lead to the latest version in turn: at most the last `patches_max`, and
/// together below kPatchShareMax of its full payload, which takes `full_bytes`. Other patches help nobody.
[[nodiscard]] std::set<PayloadId> useful_chain(const Holdings& holdings, Version latest, std::uint64_t full_bytes,
                                               std::uint32_t patches_max);

}  // namespace weightcast
