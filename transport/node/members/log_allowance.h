#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/time.h"
#include "transport/core/budget.h"

namespace weightcast {

/// How much of this node's log a peer may cause: kBurstBytes at once and kBytesPerSecond on average, whatever the lines
/// say. So one member that does something wrong as often as it can fills no disk. Pure.
class LogAllowance {
 public:
  static constexpr double kBytesPerSecond = 40;
  static constexpr double kBurstBytes = 32 * 1024;
  /// Beyond so many peers that have caused lines lately all others have one allowance together.
  static constexpr std::size_t kPeersMax = 65'536;
  static constexpr Duration kForgetInterval = std::chrono::minutes(1);

  /// How many lines of that peer's were left out since the last one that was written.
  [[nodiscard]] std::uint64_t left_out(const std::string& peer) const;
  /// Whether a line that `peer` has caused is to be written. `bytes`: all that it takes in the log.
  [[nodiscard]] bool admit(Instant now, const std::string& peer, std::size_t bytes);

 private:
  struct Peer {
    Budget bytes{kBytesPerSecond, kBurstBytes};
    std::uint64_t left_out = 0;
  };

  std::map<std::string, Peer> peers_;
  Instant forgets_at_{};  // a look at all of them is not made for each line
};

}  // namespace weightcast
