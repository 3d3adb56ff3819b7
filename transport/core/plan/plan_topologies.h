#pragma once

#include <span>
#include <vector>

#include "transport/core/plan/plan_evaluate.h"

namespace weightcast {

/// The candidates of each topology: a handful of forests that differ in the topology's one free number (how many
/// chains, what fan-out, how many stripes), the simplest first. make_plan() evaluates them and keeps the best.
/// All are deterministic and give every member exactly one parent per stripe, one that may feed it; members that cannot
/// relay are leaves.

/// Everyone from the origin.
[[nodiscard]] Forest star_forest(const PlanNetwork& network);

/// `chain_count` chains. Slower members stand behind faster ones; where there are more members that cannot relay than
/// chains, the last relay of a chain feeds several of them.
[[nodiscard]] Forest chain_forest(const PlanNetwork& network, std::uint32_t chain_count);
[[nodiscard]] std::vector<Forest> chain_candidates(const PlanNetwork& network);

/// Fan-out k: a relay feeds k others at 1/k of its uplink, so that few hops reach many.
[[nodiscard]] std::vector<Forest> tree_candidates(const PlanNetwork& network);

/// k stripes, each a tree of its own, in the manner of SplitStream (SOSP 2003): a relay has children in one stripe
/// only, so that it sends about what it receives. Stripes are weighted by their relays' uplinks, fan-outs are
/// proportional to uplinks, and the origin feeds in each stripe whom the relays cannot: this fills asymmetric links.
[[nodiscard]] std::vector<Forest> striped_candidates(const PlanNetwork& network);

/// Parents by node: relays, then leaves, each under the first feeder that has room, the origin first and then the
/// relays in the order in which they were placed. `fan_out` is by node; the last feeder takes what is left over. Whom
/// no feeder with room may feed is fed by the last one that may.
[[nodiscard]] std::vector<PlanNode> fill_breadth_first(const PlanNetwork& network, std::span<const PlanNode> relays,
                                                       std::span<const PlanNode> leaves,
                                                       std::span<const std::uint32_t> fan_out);

/// Relays in the order in which topologies place them, nearest the origin first: by speed class, then by rank. A
/// class holds rates within 20 % of its fastest member, so that noise in measurements does not override the rank.
/// Rates above `rate_of_interest` count as equal.
[[nodiscard]] std::vector<PlanNode> relays_by_speed(const PlanNetwork& network, double rate_of_interest);
/// The members that cannot relay, fastest downlink first, then by rank.
[[nodiscard]] std::vector<PlanNode> leaves_by_speed(const PlanNetwork& network);

}  // namespace weightcast
