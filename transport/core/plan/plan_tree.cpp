#include <algorithm>
#include <cmath>

#include "transport/core/plan/plan_topologies.h"

namespace weightcast {

std::vector<PlanNode> fill_breadth_first(const PlanNetwork& network, std::span<const PlanNode> relays,
                                         std::span<const PlanNode> leaves, std::span<const std::uint32_t> fan_out) {
  std::vector<PlanNode> parents(fan_out.size(), kOriginNode);
  std::vector<PlanNode> feeders{kOriginNode};
  std::vector<std::uint32_t> fed(fan_out.size());
  std::size_t open = 0;  // the first feeder with room
  const auto has_room = [&](std::size_t at) {
    return at + 1 == feeders.size() || fed[feeders[at]] < fan_out[feeders[at]];
  };
  const auto place = [&](PlanNode node) {
    while (!has_room(open)) ++open;
    std::size_t at = open;
    while (at < feeders.size() && !(has_room(at) && network.may_feed(feeders[at], node))) ++at;
    if (at == feeders.size()) {
      while (!network.may_feed(feeders[--at], node)) {
      }
    }
    parents[node] = feeders[at];
    ++fed[feeders[at]];
  };
  // The origin's places go first to whom nobody else can feed.
  for (const bool only_from_origin : {true, false}) {
    if (only_from_origin && network.only_from_origin.empty()) continue;
    for (const PlanNode relay : relays) {
      if (network.is_only_from_origin(relay) != only_from_origin) continue;
      place(relay);
      if (fan_out[relay] > 0) feeders.push_back(relay);
    }
    for (const PlanNode leaf : leaves) {
      if (network.is_only_from_origin(leaf) == only_from_origin) place(leaf);
    }
  }
  return parents;
}

std::vector<Forest> tree_candidates(const PlanNetwork& network) {
  const std::vector<PlanNode> leaves = leaves_by_speed(network);
  std::vector<Forest> candidates;
  for (const std::uint32_t fan_out : {2u, 3u, 4u, 6u, 8u, 16u, 32u, 64u}) {
    if (fan_out > network.member_count()) break;
    const std::vector<PlanNode> relays = relays_by_speed(network, network.uplink[kOriginNode]);
    std::vector<std::uint32_t> slots(network.node_count(), fan_out);
    // The origin feeds as many as it can at the rate at which a middling relay feeds its own.
    if (!relays.empty()) {
      const double edge_rate = network.through(relays[relays.size() / 2]) / fan_out;
      const double fitting = std::floor(network.uplink[kOriginNode] / edge_rate);
      slots[kOriginNode] = static_cast<std::uint32_t>(std::clamp(fitting, 1.0, double(network.member_count())));
    }
    for (const PlanNode leaf : leaves) slots[leaf] = 0;
    candidates.push_back({StripeTree{1, fill_breadth_first(network, relays, leaves, slots)}});
  }
  if (candidates.empty()) candidates.push_back(star_forest(network));  // one member: every topology is the same
  return candidates;
}

}  // namespace weightcast
