#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "proto/limits.h"

namespace weightcast {

inline constexpr std::uint32_t kStripeWeightMax = 1024;

/// A stripe with a smaller share of the chunks than this one's inverse is refused: who looks for its next chunk would
/// pass too many others.
inline constexpr std::uint32_t kStripeShareMin = 1024;

/// Whether a StripeMap can be made of them: at least one, at most kStripesMax, each in [1, kStripeWeightMax] and at
/// least 1 / kStripeShareMin of all together.
[[nodiscard]] bool are_stripe_weights(std::span<const std::uint32_t> weights);

/// Says which stripe each chunk belongs to. All nodes compute the same map, so that no table travels. Pure.
///
///   equal weights    chunk c is of stripe c mod count
///   other weights    the stripes' shares are neighbouring intervals of [0, 1), in their order; the fraction of c
///                    times the golden ratio lies in the interval of chunk c's stripe
///
/// The multiples of the golden ratio fall evenly everywhere from the first one on (Knuth, TAOCP 3, section 6.4): of any
/// number of chunks each stripe gets its share, but for a few.
/// Invariant: making a map costs no more than reading the weights, since anybody may send some; of any 3 *
/// kStripeShareMin chunks in a row each stripe has one.
class StripeMap {
 public:
  /// `weights` for which are_stripe_weights() holds; one weight means that all chunks are in stripe 0.
  explicit StripeMap(std::span<const std::uint32_t> weights);

  [[nodiscard]] std::uint32_t stripe_of(ChunkIndex chunk) const;
  [[nodiscard]] std::uint32_t count() const { return count_; }

 private:
  std::uint32_t count_ = 1;
  bool equal_ = true;
  std::array<std::uint64_t, kStripesMax> ends_{};  // of the stripes' intervals, in units of 2^-32
};

}  // namespace weightcast
