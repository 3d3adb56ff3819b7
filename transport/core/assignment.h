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
  std::string host;  ///< of the origin unused: everyone was given its address
  std::uint16_t port = 0;

  bool operator==(const NodeAddress&) const = default;
};

/// Whom a worker gets one stripe from: the parent first, then its ancestors up to the origin.
struct StripeSource {
  std::vector<NodeAddress> ancestors;
  double predicted_bytes_per_s = 0;  ///< 0: not known

  bool operator==(const StripeSource&) const = default;
};

/// A worker's part in the plan of one payload.
/// Invariants of what assignment_from_wire() returns: one weight per stripe, within their limits; each stripe has
/// ancestors, which can be dialled; rates are finite.
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
