#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace weightcast {

/// Says which stripe each chunk belongs to: smooth weighted round-robin over the weights, so that every window of
/// chunks holds each stripe in its share and all nodes agree without a table on the wire.
/// Invariant: the pattern repeats after the sum of the weights (at most 64 * 1024).
class StripeMap {
 public:
  /// `weights` not empty, each in [1, 1024]; one weight means that all chunks are in stripe 0.
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
