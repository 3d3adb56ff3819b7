#include <algorithm>
#include <cmath>
#include <set>

#include "base/result.h"
#include "transport/core/plan/plan_topologies.h"

namespace weightcast {
namespace {

constexpr double kSameSpeed = 0.8;

/// Stable: nodes come in rank order, and equal rates keep it.
void sort_fastest_first(std::vector<PlanNode>& nodes, const auto& rate_of) {
  std::stable_sort(nodes.begin(), nodes.end(), [&](PlanNode a, PlanNode b) { return rate_of(a) > rate_of(b); });
}

}  // namespace

std::vector<PlanNode> relays_by_speed(const PlanNetwork& network, double rate_of_interest) {
  std::vector<PlanNode> relays;
  for (PlanNode node = 1; node < network.node_count(); ++node) {
    if (network.can_relay[node]) relays.push_back(node);
  }
  const auto rate_of = [&](PlanNode node) { return std::min(network.through(node), rate_of_interest); };
  sort_fastest_first(relays, rate_of);
  for (auto first = relays.begin(); first != relays.end();) {
    const double least = kSameSpeed * rate_of(*first);
    const auto last = std::find_if(first, relays.end(), [&](PlanNode node) { return rate_of(node) < least; });
    std::sort(first, last);
    first = last;
  }
  return relays;
}

std::vector<PlanNode> leaves_by_speed(const PlanNetwork& network) {
  std::vector<PlanNode> leaves;
  for (PlanNode node = 1; node < network.node_count(); ++node) {
    if (!network.can_relay[node]) leaves.push_back(node);
  }
  sort_fastest_first(leaves, [&](PlanNode node) { return network.downlink[node]; });
  return leaves;
}

Forest star_forest(const PlanNetwork& network) {
  return {StripeTree{1, std::vector<PlanNode>(network.node_count(), kOriginNode)}};
}

Forest chain_forest(const PlanNetwork& network, std::uint32_t chain_count) {
  WC_CHECK(chain_count > 0);
  StripeTree tree{1, std::vector<PlanNode>(network.node_count(), kOriginNode)};
  std::vector<PlanNode> tails(chain_count, kOriginNode);
  std::uint32_t next = 0;
  for (const PlanNode node : relays_by_speed(network, network.uplink[kOriginNode] / chain_count)) {
    tree.parents[node] = tails[next];
    tails[next] = node;
    next = (next + 1) % chain_count;
  }
  // From here on the tails stay: one leaf ends a chain, and any further ones share its last relay.
  for (const PlanNode node : leaves_by_speed(network)) {
    tree.parents[node] = tails[next];
    next = (next + 1) % chain_count;
  }
  return {std::move(tree)};
}

std::vector<Forest> chain_candidates(const PlanNetwork& network) {
  const std::uint32_t members = network.member_count();
  const double origin_uplink = network.uplink[kOriginNode];
  std::vector<double> rates;
  for (PlanNode node = 1; node <= members; ++node) {
    rates.push_back(network.can_relay[node] ? network.through(node) : network.downlink[node]);
  }
  std::sort(rates.begin(), rates.end());
  // With one rate for all this is the m = floor(B / b) of ECHO-2. With several, each of them may be the one to fill
  // the origin's uplink with; a few quantiles find it.
  std::set<std::uint32_t> counts;
  for (const double quantile : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const double rate = rates[static_cast<std::size_t>(quantile * (members - 1))];
    // A rate measured a hair above b must not cost a chain.
    const double fitting = std::floor(origin_uplink / rate * 1.02);
    counts.insert(static_cast<std::uint32_t>(std::clamp(fitting, 1.0, double(members))));
  }
  std::vector<Forest> candidates;
  for (const std::uint32_t count : counts) candidates.push_back(chain_forest(network, count));
  return candidates;
}

}  // namespace weightcast
