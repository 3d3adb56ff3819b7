#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace weightcast {

inline constexpr std::uint32_t kStripeWeightMax = 1024;

/// Whether a StripeMap can be made of them: at least one, at most kStripesMax, each in [1, kStripeWeightMax].
[[nodiscard]] bool are_stripe_weights(std::span<const std::uint32_t> weights);

/// Says which stripe each chunk belongs to: smooth weighted round-robin over the weights, so that every window of
/// chunks holds each stripe in its share and all nodes agree without a table on the wire.
/// Invariant: the pattern repeats after the sum of the weights (at most 64 * 1024).
class StripeMap {
 public:
  /// `weights` for which are_stripe_weights() holds; one weight means that all chunks are in stripe 0.
  explicit StripeMap(std::span<const std::uint32_t> weights);

  [[nodiscard]] std::uint32_t stripe_of(ChunkIndex chunk) const {
    return pattern_.empty() ? 0u : pattern_[chunk.value % pattern_.size()];
  }
  [[nodiscard]] std::uint32_t count() const { return count_; }

 private:
  std::uint32_t count_ = 1;
  std::vector<std::uint8_t> pattern_;  // empty for one stripe
};

}  // namespace weightcast
