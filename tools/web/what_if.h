#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "transport/core/plan/plan.h"
#include "transport/http/message.h"

namespace weightcast {

/// A fleet that somebody thinks of: alike workers behind one origin.
struct WhatIf {
  static constexpr std::uint32_t kWorkersMax = 10'000;
  static constexpr std::size_t kSweepMax = 20;
  /// Of workers and sweep together: what bounds the time that an answer takes.
  static constexpr std::uint64_t kWorkersInAllMax = 40'000;

  std::uint32_t workers = 0;
  std::vector<std::uint32_t> sweep;  ///< other numbers of workers
  std::uint64_t payload_bytes = 0;
  Rate uplink;       ///< of the origin
  Rate peer;         ///< that each worker receives at
  Rate peer_uplink;  ///< that each worker sends at
  Duration delay{};  ///< of a hop, one way
};

/// The query of GET /plan: workers, size_bytes, uplink_bps, peer_bps; peer_uplink_bps (peer_bps), delay_ms (0.5) and
/// sweep (numbers with commas, none) may be missing. Errors: kInvalidArgument, naming the value and its range.
[[nodiscard]] Result<WhatIf> parse_what_if(const HttpRequest& request);

/// What the planner foresees: {"payload_bytes", "workers", "cases": one for each topology with "topology", "t50_s",
/// "t90_s", "t100_s", "bound_s", "chunk_bytes", "origin_egress_bytes" and "depth" (hops to the furthest worker),
/// "sweep": for each number of workers "workers", "topology", "t100_s" and "origin_egress_bytes" of the best topology,
/// and "star_s"}. Names and units are those of `weightcast simulate --json`. Pure. Cost: a
/// plan of each topology for `workers`, and one more for each number of the sweep: with kWorkersInAllMax 0.3 s of a
/// core.
[[nodiscard]] nlohmann::json what_if_json(const WhatIf& question);

}  // namespace weightcast
