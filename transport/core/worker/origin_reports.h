#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/core/edge/parent_fault.h"
#include "transport/core/install_phases.h"
#include "transport/core/worker/held_payloads.h"
#include "transport/core/worker/origin_link.h"

namespace weightcast {

/// What a worker tells its origin of payloads: each is one message, lost if there is no connection now. Pure. Owned by
/// an Intake.
class OriginReports {
 public:
  /// All outlive it.
  OriginReports(OriginLink& origin, const HeldPayloads& held) : origin_(origin), held_(held) {}

  /// The version that is installed. `seconds`: from its first chunk to the switch. `phases`: if this process installed
  /// it.
  void send_installed(std::uint64_t bytes_received, double seconds, const std::optional<InstallPhases>& phases);
  void send_failed(PayloadId payload, const Error& why);
  void send_faults(const std::vector<ParentFault>& faults);

 private:
  OriginLink& origin_;
  const HeldPayloads& held_;
};

}  // namespace weightcast
