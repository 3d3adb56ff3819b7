#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/peer_identity.h"
#include "base/result.h"
#include "base/time.h"
#include "transport/core/refusal.h"
#include "transport/node/members/log_allowance.h"

namespace weightcast {

/// Counts whom a node has turned away, and logs each: who, from where, why. Of one reason it logs kBurst lines at once
/// and kPerSecond on average, and of one peer what the LogAllowance gives; the next line tells how many were left out.
/// So a flood does not fill a disk. Loop thread only.
class Audit {
 public:
  explicit Audit(LogAllowance& allowance) : allowance_(allowance) {}

  static constexpr double kBurst = 10;
  static constexpr double kPerSecond = 0.5;

  /// `who`: what the peer has proven to be, if anything. `host`: where it is.
  void note(Instant now, Refusal reason, const std::optional<PeerIdentity>& who, const std::string& host,
            const Error& why);

  [[nodiscard]] std::uint64_t count(Refusal reason) const { return of(reason).count; }

 private:
  struct Reason {
    std::uint64_t count = 0;
    std::uint64_t left_out = 0;
    double allowance = kBurst;
    Instant counted_at{};
  };
  [[nodiscard]] Reason& of(Refusal reason) { return reasons_.at(static_cast<std::size_t>(reason)); }
  [[nodiscard]] const Reason& of(Refusal reason) const { return reasons_.at(static_cast<std::size_t>(reason)); }

  LogAllowance& allowance_;
  std::array<Reason, kRefusalNames.size()> reasons_;
};

}  // namespace weightcast
