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

  /// How far the payload that arrives is.
  struct Progress {
    PayloadId receiving{};  ///< of kNoVersion: none
    std::uint32_t chunks_verified = 0;
    std::uint32_t chunks_total = 0;
    std::uint64_t bytes_received = 0;  ///< since the start
    std::uint64_t bytes_sent = 0;      ///< since the start
    double receive_bytes_per_s = 0;
    std::vector<std::uint32_t> stripes_missing;  ///< by stripe of the plan; empty: not known yet
    std::optional<Duration> taken_after;         ///< Intake's, of the version that is installed
  };
  void send_progress(Instant now, const Progress& progress);
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
