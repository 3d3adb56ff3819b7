#pragma once

#include <nlohmann/json.hpp>

#include "bench/fleet/fleet_flags.h"

namespace weightcast::bench {

/// Workers that join a running origin at the same moment, over encrypted connections on loopback. All of the workers'
/// ends are on one thread, so the time has their share of the handshakes in it, too.
struct JoinsResult {
  std::size_t workers = 0;
  double first_s = 0;      ///< from the first dial until the last is in; nobody has met before
  double again_s = 0;      ///< the same for all of them with a ticket
  double first_cpu_s = 0;  ///< of both ends
  double again_cpu_s = 0;
  double origin_bytes_per_worker = 0;  ///< anonymous memory that the origin took for each idle worker
};

struct JoinsBenchOptions {
  std::size_t workers = 500;
  Duration settling = std::chrono::seconds(8);  ///< idle before memory is looked at
  FleetFlags flags;
};

/// Errors: those of the fleet; what the origin said to a worker that it turned away.
[[nodiscard]] Result<JoinsResult> run_joins_bench(const JoinsBenchOptions& options);
[[nodiscard]] nlohmann::json to_json(const JoinsResult& result);

}  // namespace weightcast::bench
