#pragma once

#include "bench/broadcast/broadcast_bench.h"

namespace weightcast::bench {

struct RatesBenchOptions {
  std::vector<BroadcastCase> cases;  ///< what they ask
  /// "2=20mbit", "0=60mbit", "3=20mbit:100mbit": links that become others, in each case. Node 0 is the origin.
  std::vector<std::string> changes;
  std::uint32_t publications = 3;            ///< after the start, and as many after the changes
  Duration pause = std::chrono::seconds(3);  ///< before each publication, as long as a trainer's step: links are free
  double ratio_max = 0;                      ///< an error if a publication but the first takes longer; 0: none is
  FleetFlags flags;
};

/// Measures each publication of each case with one fleet whose rates are configured, and with one that nobody has told
/// its rates. Both are on the same hosts and publish in turn. The first fleet is started anew with the rates after the
/// changes; the second finds them. Hosts need links of their own (--netns). Prints a line for each publication, and
/// writes their JSON. Errors: those of measure_broadcast(); kInvalidArgument (no --netns, no such node); kTimedOut (by
/// `ratio_max`).
[[nodiscard]] Status run_rates_bench(const RatesBenchOptions& options);

}  // namespace weightcast::bench
