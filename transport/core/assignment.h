#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace weightcast::wire {
class Assignment;
}  // namespace weightcast::wire

namespace weightcast {

/// A node as others reach it.
struct NodeAddress {
  PeerId id{};
  std::string name;
  std::string host;  ///< unused for the origin: every worker has its address by configuration
  std::uint16_t port = 0;

  bool operator==(const NodeAddress&) const = default;
};

/// Who feeds one stripe to a worker: the parent first, then its ancestors up to the origin.
struct StripeSource {
  std::vector<NodeAddress> ancestors;
  double predicted_bytes_per_s = 0;  ///< 0: not known

  bool operator==(const StripeSource&) const = default;
};

/// A worker's part in the plan of one payload.
/// Invariants of assignment_from_wire(): one weight per stripe, within the limits of stripes.h; each stripe has at
/// least one ancestor; ancestors have valid ports; rates are finite.
struct Assignment {
  Epoch epoch{};
  PayloadId payload{};
  std::vector<StripeSource> stripes;
  std::vector<std::uint32_t> stripe_weights;  ///< see transport/core/plan/stripes.h

  bool operator==(const Assignment&) const = default;
};

/// Checks everything that a peer could have got wrong. Errors: kCorrupt.
[[nodiscard]] Result<Assignment> assignment_from_wire(const wire::Assignment& message);
[[nodiscard]] wire::Assignment assignment_to_wire(const Assignment& assignment);

}  // namespace weightcast
