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
  PayloadId next{};               ///< what it is to take now; meaningless while `make` is set
  std::uint64_t total_bytes = 0;  ///< of `next` and what follows it up to the latest version
  bool make = false;              ///< `next` has to be made first; nothing else is worth beginning
};

struct CatchUpRequest {
  Version installed{};            ///< kNoVersion: nothing
  Version latest{};               ///< its full payload is among the holdings
  bool patches_fit = true;        ///< false: it takes the full payload as it is, and no other
  std::uint32_t patches_max = 0;  ///< in a row
  /// Whether a patch that is not among the holdings can be had by comparing two snapshots, and has not been found
  /// useless. Of a packed payload also whether packing is worth it.
  std::function<bool(PayloadId)> can_make;
};

/// The path of least bytes from the installed version to the latest: one patch (between two neighbours, or folded over
/// several versions), stored patches in turn, or the full payload. A worker waits for a direct patch that can still be
/// made. Such a patch is as small as any chain, because it carries the latest value of each cell once. The full payload
/// is packed if the origin holds it packed, or can pack it. Pure.
[[nodiscard]] CatchUp choose_payload(const Holdings& holdings, const CatchUpRequest& request);

/// The stored patches of `holdings` that lead to the latest version in turn: at most the last `patches_max`, and
/// together below kPatchShareMax of the full payload. Other patches help nobody.
[[nodiscard]] std::set<PayloadId> useful_chain(const Holdings& holdings, Version latest, std::uint32_t patches_max);

}  // namespace weightcast
