#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/fleet/fleet_flags.h"
#include "plot/figure.h"

namespace weightcast::bench {

/// One measurement: what is asked, and what came out.
struct BroadcastCase {
  Topology topology = Topology::kChain;
  Rate uplink{};                    ///< of the origin
  std::vector<LinkRates> peers;     ///< by worker
  std::uint64_t payload_bytes = 0;  ///< of the snapshot: what line times and ratios are over

  std::string kind;                ///< of the payload that travelled: "full", "packed"
  std::uint64_t travel_bytes = 0;  ///< of it
  std::string planned_topology;    ///< what `auto` chose
  std::optional<double> t50_s, t90_s, t100_s;
  double line_s = 0;      ///< a plain TCP stream of the payload, from the origin to the first worker
  double line_cpu_s = 0;  ///< what that costs both ends: the floor of what a payload can cost per worker
  double predicted_s = 0;
  double take_s = 0;  ///< until the origin had taken the snapshot over; part of all times
  std::uint64_t origin_egress_bytes = 0;
  double cpu_s = 0;
  double stolen_s = 0;  ///< processor time that the host gave to others meanwhile
  std::uint64_t rss_anon_bytes_max = 0;
  struct Worker {
    std::optional<double> t_s;
    double line_s = 0;  ///< the same stream through this worker's own link
    std::uint64_t received_bytes = 0;
  };
  std::vector<Worker> workers;

  [[nodiscard]] std::optional<double> ratio() const;
  [[nodiscard]] double cpu_s_per_delivered_gib() const;
};

struct BroadcastBenchOptions {
  std::vector<BroadcastCase> cases;  ///< their first four fields
  /// Published to the same fleet one after the other, of which the last is measured: from the third on, nodes write to
  /// the files of a version that was forgotten.
  std::uint32_t versions = 1;
  Content content = Content::kRandom;
  FleetFlags flags;
};

/// Measures each case on a fleet of its own, calling `on_case` after each. Every worker's installed file is compared
/// with the payload. Errors: those of the fleet; kCorrupt (a file differs); kTimedOut (a worker never had it).
[[nodiscard]] Result<std::vector<BroadcastCase>> run_broadcast_bench(
    BroadcastBenchOptions options, const std::function<void(const BroadcastCase&)>& on_case);

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
