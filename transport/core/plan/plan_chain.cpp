#include <algorithm>
#include <cmath>
#include <list>
#include <set>
#include <utility>

#include "base/result.h"
#include "transport/core/plan/plan_topologies.h"

namespace weightcast {
namespace {

constexpr double kSameSpeed = 0.8;

/// Stable: nodes come in rank order, and equal rates keep it.
void sort_fastest_first(std::vector<PlanNode>& nodes, const auto& rate_of) {
  std::stable_sort(nodes.begin(), nodes.end(), [&](PlanNode a, PlanNode b) { return rate_of(a) > rate_of(b); });
}

/// Appends members to chains in turn, each to the first tail that may feed it.
class ChainBuilder {
 public:
  ChainBuilder(const PlanNetwork& network, std::uint32_t chain_count)
      : network_(network), parents_(network.node_count(), kOriginNode), tails_(chain_count, kOriginNode) {}

  Forest run() && {
    std::vector<PlanNode> relays = relays_by_speed(network_, network_.uplink[kOriginNode] / double(tails_.size()));
    // While chains are without a head.
    std::stable_partition(relays.begin(), relays.end(), [&](PlanNode n) { return network_.is_only_from_origin(n); });
    std::list<PlanNode> waiting(relays.begin(), relays.end());
    while (!waiting.empty() && append_first(waiting)) {
    }
    for (const PlanNode node : waiting) insert(node);
    // From here on the tails stay: one leaf ends a chain, and any further ones share its last relay.
    for (const PlanNode node : leaves_by_speed(network_)) place_leaf(node);
    return {StripeTree{1, std::move(parents_)}};
  }

 private:
  /// Appends the first that the next tail may feed, or else the tail after it. Returns false if no tail may feed any.
  bool append_first(std::list<PlanNode>& waiting) {
    for (std::size_t i = 0; i < tails_.size(); ++i) {
      PlanNode& tail = tails_[next_];
      next_ = (next_ + 1) % tails_.size();
      const auto node = std::ranges::find_if(waiting, [&](PlanNode n) { return network_.may_feed(tail, n); });
      if (node == waiting.end()) continue;
      parents_[*node] = tail;
      tail = *node;
      placed_.push_back(*node);
      waiting.erase(node);
      return true;
    }
    return false;
  }

  /// Gives a relay that no tail may feed a place between two others, the last that there is, or a chain of its own.
  void insert(PlanNode node) {
    const auto below = std::find_if(placed_.rbegin(), placed_.rend(), [&](PlanNode n) {
      return network_.may_feed(parents_[n], node) && network_.may_feed(node, n);
    });
    if (below != placed_.rend()) {
      parents_[node] = std::exchange(parents_[*below], node);
    } else {
      tails_.push_back(node);
    }
    placed_.push_back(node);
  }

  void place_leaf(PlanNode leaf) {
    for (std::size_t i = 0; i < tails_.size(); ++i) {
      const PlanNode tail = tails_[next_];
      next_ = (next_ + 1) % tails_.size();
      if (!network_.may_feed(tail, leaf)) continue;
      parents_[leaf] = tail;
      return;
    }
    const auto feeder =
        std::find_if(placed_.rbegin(), placed_.rend(), [&](PlanNode n) { return network_.may_feed(n, leaf); });
    parents_[leaf] = feeder != placed_.rend() ? *feeder : kOriginNode;
  }

  const PlanNetwork& network_;
  std::vector<PlanNode> parents_;
  std::vector<PlanNode> tails_;
  std::vector<PlanNode> placed_;  // relays
  std::size_t next_ = 0;          // of the tails
};

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
  return ChainBuilder(network, chain_count).run();
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
