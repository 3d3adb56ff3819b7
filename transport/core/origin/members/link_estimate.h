#pragma once

#include <cstdint>
#include <span>

#include "base/units.h"

namespace weightcast {

/// A smaller payload travels within a socket's buffer, so its pace says nothing of a link.
inline constexpr std::uint64_t kMeasuredBytesMin = 4 * kMiB;

/// What the origin knows of one direction of a node's link without being told: a probe measures it, and transfers that
/// go faster raise it. A transfer that goes slower does not lower it, because that may be the fault of either end: the
/// link is probed again (rate_probes.h). For the same reason a transfer says nothing of a link that no probe has
/// measured. So nobody but the node itself, and the path between it and the origin, can make it look slow. Pure.
/// Invariant: a rate that is known is finite and positive.
class LinkEstimate {
 public:
  LinkEstimate() = default;
  /// What was remembered; nothing if it cannot be a rate.
  explicit LinkEstimate(Rate remembered) { handle_measured(remembered); }

  /// A probe found this rate, which replaces what was known.
  void handle_measured(Rate rate);
  /// The link carried this at least. Nothing changes if it is not known.
  void handle_reached(Rate rate);
  void forget() { rate_ = Rate{}; }

  [[nodiscard]] bool known() const { return rate_.limited(); }
  /// Without a limit: not known.
  [[nodiscard]] Rate rate() const { return rate_; }

 private:
  Rate rate_{};
};

/// Both directions of a worker's link.
struct LinkEstimates {
  LinkEstimate uplink;
  LinkEstimate downlink;
};

/// What plans take for a direction of which `cap` is configured: the cap, unless the link was measured to carry less
/// than 1 / kMissFactor of it; without a cap what was measured. Without a limit: not known.
[[nodiscard]] Rate planned_rate(Rate cap, const LinkEstimate& estimate);
/// A rate that was missed by this factor was no rate.
inline constexpr double kMissFactor = 1.5;

/// Gives rates that differ by at most 20 % one value, their median, so that the noise of measuring does not order the
/// members of a plan. Those without a limit stay so.
void even_out(std::span<Rate*> rates);

}  // namespace weightcast
