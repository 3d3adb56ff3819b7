#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/fleet/fleet_flags.h"
#include "bench/plot/figure.h"

namespace weightcast::bench {

/// One measurement: what is asked, and what came out.
struct BroadcastCase : BroadcastCost {
  // What is asked.
  Topology topology = Topology::kChain;
  Rate uplink{};                    ///< of the origin
  std::vector<LinkRates> peers;     ///< by worker
  std::uint64_t payload_bytes = 0;  ///< of the snapshot: what line times and ratios are over

  std::string kind;                ///< of the payload that travelled: "full", "packed"
  std::uint64_t travel_bytes = 0;  ///< of it
  std::string planned_topology;    ///< what `auto` chose
  double line_s = 0;               ///< a plain TCP stream of the payload, from the origin to the first worker
  double line_cpu_s = 0;           ///< what that costs both ends: the floor of what a payload can cost per worker
  double predicted_s = 0;
  struct Worker {
    std::optional<double> t_s;
    double line_s = 0;  ///< the same stream through this worker's own link
    std::uint64_t received_bytes = 0;
  };
  std::vector<Worker> workers;

  /// Of the origin and the workers.
  [[nodiscard]] std::vector<LinkRates> rates() const;
  [[nodiscard]] std::optional<double> ratio() const;
  [[nodiscard]] double cpu_s_per_delivered_gib() const;
};

struct BroadcastBenchOptions {
  /// Published to the same fleet one after the other, of which the last is measured: from the third on, nodes write to
  /// the files of a version that was forgotten.
  std::uint32_t versions = 1;
  Content content = Content::kRandom;
  FleetFlags flags;
};

/// Measures what `wanted` asks on a fleet of its own. Every worker's installed file is compared with the payload.
/// Errors: those of the fleet; kCorrupt (a file differs); kTimedOut (a worker never had it).
[[nodiscard]] Result<BroadcastCase> measure_broadcast(const BroadcastCase& wanted,
                                                      const BroadcastBenchOptions& options);

/// The cases of ECHO-2's figure on broadcast: a star without a limit at the origin, stars and chains with 300, 600 and
/// 1000 Mbit/s, workers of 100 Mbit/s.
[[nodiscard]] std::vector<BroadcastCase> echo2_cases(const std::vector<std::size_t>& workers,
                                                     std::uint64_t payload_bytes);

[[nodiscard]] nlohmann::json to_json(const std::vector<BroadcastCase>& cases);
[[nodiscard]] std::string broadcast_heading();
[[nodiscard]] std::string broadcast_line(const BroadcastCase& broadcast_case);
/// Time to rho = 0.5, 0.9 and 1.0 against the number of workers, and the line.
[[nodiscard]] Figure broadcast_figure(const std::vector<BroadcastCase>& cases);

}  // namespace weightcast::bench
