#include "transport/core/plan/plan_repair.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/result.h"
#include "proto/limits.h"

namespace weightcast {
namespace {

constexpr PlanNode kNone = std::numeric_limits<PlanNode>::max();
constexpr double kClearlyFaster = 1.01;
// A demoted member keeps behind its chain, unless it would receive so many times faster elsewhere.
constexpr double kTailsFactor = 2;

std::vector<std::vector<PlanNode>> parents_by_node(const Plan& plan,
                                                   const std::unordered_map<PeerId, PlanNode>& nodes) {
  std::vector<std::vector<PlanNode>> parents;
  for (const StripePlan& stripe : plan.stripes) {
    auto& of_stripe = parents.emplace_back(1, kOriginNode);
    for (const PeerId parent : stripe.parents) of_stripe.push_back(nodes.at(parent));
  }
  return parents;
}

/// One stripe while it is mended, in the numbering of the new request.
/// Invariant: following parents from any node ends at the origin or at a node that is afloat (parent kNone); only
/// attach() makes edges, and only below nodes that do not hang below the child.
class MendedTree {
 public:
  MendedTree(std::uint32_t node_count, std::uint32_t weight)
      : weight_(weight), parents_(node_count, kNone), children_(node_count) {}

  void attach(PlanNode node, PlanNode parent) {
    parents_[node] = parent;
    children_[parent].push_back(node);
  }
  [[nodiscard]] bool afloat(PlanNode node) const { return parents_[node] == kNone; }
  [[nodiscard]] bool has_children(PlanNode node) const { return !children_[node].empty(); }

  /// The last relay on the way down from `node`, if nobody is below it.
  [[nodiscard]] std::optional<PlanNode> tail_below(const PlanNetwork& network, PlanNode node) const {
    while (has_children(node)) {
      const auto next = std::find_if(children_[node].begin(), children_[node].end(),
                                     [&](PlanNode child) { return network.can_relay[child]; });
      if (next == children_[node].end()) return std::nullopt;
      node = *next;
    }
    return node;
  }

  /// The feeder under which a node would receive this stripe fastest, the nearest to the origin among equals; `tail`,
  /// unless that is slower by kTailsFactor. Only what hangs together with the origin is searched, so never anything
  /// below the node itself.
  [[nodiscard]] PlanNode best_feeder(const PlanNetwork& network, double share, std::optional<PlanNode> tail,
                                     const auto& may_feed) const {
    PlanNode best = kOriginNode;
    double best_rate = 0, tail_rate = 0;
    std::vector<PlanNode> order{kOriginNode};
    std::vector<double> receives(parents_.size());
    receives[kOriginNode] = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const PlanNode feeder = order[i];
      const double uplink = network.uplink[feeder] * (feeder == kOriginNode ? share : 1);
      const double each = uplink / double(std::max<std::size_t>(children_[feeder].size(), 1));
      double spare = uplink;
      for (const PlanNode child : children_[feeder]) {
        receives[child] = std::min({each, receives[feeder], network.downlink[child] * share});
        spare -= receives[child];
        order.push_back(child);
      }
      if (!may_feed(feeder)) continue;
      const double offered = std::max(spare, uplink / double(children_[feeder].size() + 1));
      const double rate = std::min(offered, receives[feeder]);
      if (feeder == tail) tail_rate = rate;
      if (rate > best_rate * kClearlyFaster) {
        best = feeder;
        best_rate = rate;
      }
    }
    return tail && tail_rate * kTailsFactor >= best_rate ? *tail : best;
  }

  [[nodiscard]] StripeTree finished() && {
    parents_[kOriginNode] = kOriginNode;
    for (const PlanNode parent : parents_) WC_CHECK(parent != kNone);
    return {weight_, std::move(parents_)};
  }

 private:
  std::uint32_t weight_;
  std::vector<PlanNode> parents_;
  std::vector<std::vector<PlanNode>> children_;
};

/// Mends all stripes of one plan. Old nodes are numbered by the plan, new ones by the request.
class Repair {
 public:
  Repair(const Plan& plan, const std::vector<std::vector<PlanNode>>& parents, const std::vector<TreeView>& views,
         const std::unordered_map<PeerId, PlanNode>& old_nodes, const PlanRequest& request, const PlanNetwork& network)
      : topology_(plan.topology),
        old_parents_(parents),
        views_(views),
        network_(network),
        new_of_(plan.members.size() + 1, kNone),
        feeds_in_(network.node_count(), kNone) {
    new_of_[kOriginNode] = kOriginNode;
    for (PlanNode node = 1; node < network.node_count(); ++node) {
      const auto old = old_nodes.find(request.members[node - 1].id);
      if (old != old_nodes.end()) new_of_[old->second] = node;
    }
    for (const StripePlan& stripe : plan.stripes) {
      weight_sum_ += stripe.weight;
      trees_.emplace_back(network.node_count(), stripe.weight);
    }
  }

  Forest run(const Plan& plan) && {
    // All that stays first, so that placing knows in which stripe everyone relays.
    for (std::uint32_t stripe = 0; stripe < trees_.size(); ++stripe) keep_and_inherit(stripe);
    for (std::uint32_t stripe = 0; stripe < trees_.size(); ++stripe) {
      for (PlanNode node = 0; node < network_.node_count(); ++node) {
        if (trees_[stripe].has_children(node)) feeds_in_[node] = stripe;
      }
    }
    Forest forest;
    for (std::uint32_t stripe = 0; stripe < trees_.size(); ++stripe) {
      place_the_rest(stripe, double(plan.stripes[stripe].weight) / weight_sum_);
      forest.push_back(std::move(trees_[stripe]).finished());
    }
    return forest;
  }

 private:
  [[nodiscard]] bool relays(PlanNode old) const { return new_of_[old] != kNone && network_.can_relay[new_of_[old]]; }

  /// Keeps apart from all that it feeds and that are still there.
  [[nodiscard]] bool deserted(std::uint32_t stripe, PlanNode old) const {
    if (!network_.has_apart() || old == kOriginNode || new_of_[old] == kNone) return false;
    const auto children = views_[stripe].children(old);
    return std::ranges::any_of(children, [&](PlanNode child) { return new_of_[child] != kNone; }) &&
           std::ranges::all_of(children, [&](PlanNode child) {
             return new_of_[child] == kNone || network_.are_apart(new_of_[old], new_of_[child]);
           });
  }

  [[nodiscard]] bool demoted(std::uint32_t stripe, PlanNode old) const {
    if (new_of_[old] == kNone || views_[stripe].children(old).empty()) return false;
    return !relays(old) || deserted(stripe, old);
  }

  /// Keeps every edge between members that stay as they are, and gives the places that others leave to their orphans.
  void keep_and_inherit(std::uint32_t stripe) {
    const TreeView& view = views_[stripe];
    std::vector<PlanNode> anchor(new_of_.size(), kOriginNode);  // nearest ancestor that still relays
    std::vector<std::uint32_t> places(new_of_.size());          // by anchor: children that it lost
    std::vector<PlanNode> orphans;
    for (const PlanNode old : view.top_down()) {
      const PlanNode parent = old_parents_[stripe][old];
      anchor[old] = relays(parent) && !deserted(stripe, parent) ? parent : anchor[parent];
      while (new_of_[old] != kNone && anchor[old] != kOriginNode &&
             network_.are_apart(new_of_[anchor[old]], new_of_[old])) {
        anchor[old] = anchor[anchor[old]];
      }
      const bool leaves_its_place = new_of_[old] == kNone || demoted(stripe, old);
      if (leaves_its_place) {
        if (anchor[old] == parent) ++places[parent];
      } else if (anchor[old] == parent) {
        trees_[stripe].attach(new_of_[old], new_of_[parent]);
      } else {
        orphans.push_back(old);
      }
    }
    // Those who carry others onward come before leaves.
    std::stable_partition(orphans.begin(), orphans.end(), [&](PlanNode old) { return relays(old); });
    for (const PlanNode old : orphans) {
      if (places[anchor[old]] == 0) continue;
      --places[anchor[old]];
      trees_[stripe].attach(new_of_[old], new_of_[anchor[old]]);
    }
  }

  void place_the_rest(std::uint32_t stripe, double share) {
    MendedTree& tree = trees_[stripe];
    // In the old plan's order, so that a subtree hangs again before those who stood below it look for a place.
    const std::vector<PlanNode> olds = views_[stripe].top_down();
    for (const bool demoted_now : {false, true}) {
      for (const PlanNode old : olds) {
        if (new_of_[old] == kNone || !tree.afloat(new_of_[old]) || demoted(stripe, old) != demoted_now) continue;
        std::optional<PlanNode> tail;
        if (demoted_now && topology_ == Topology::kChain) tail = tail_behind(stripe, old);
        tree.attach(new_of_[old], feeder_for(stripe, share, new_of_[old], tail));
      }
    }
    for (PlanNode node = 1; node < network_.node_count(); ++node) {
      if (tree.afloat(node)) tree.attach(node, feeder_for(stripe, share, node));
    }
  }

  [[nodiscard]] std::optional<PlanNode> tail_behind(std::uint32_t stripe, PlanNode old) const {
    for (auto below = views_[stripe].children(old); !below.empty(); below = views_[stripe].children(below.front())) {
      if (relays(below.front())) return trees_[stripe].tail_below(network_, new_of_[below.front()]);
    }
    return std::nullopt;
  }

  [[nodiscard]] PlanNode feeder_for(std::uint32_t stripe, double share, PlanNode child,
                                    std::optional<PlanNode> tail = std::nullopt) {
    if (topology_ == Topology::kStar) return kOriginNode;
    const PlanNode feeder = trees_[stripe].best_feeder(network_, share, tail, [&](PlanNode node) {
      return node == kOriginNode ||
             (network_.may_feed(node, child) && (feeds_in_[node] == kNone || feeds_in_[node] == stripe));
    });
    if (feeder != kOriginNode) feeds_in_[feeder] = stripe;
    return feeder;
  }

  const Topology topology_;
  const std::vector<std::vector<PlanNode>>& old_parents_;
  const std::vector<TreeView>& views_;
  const PlanNetwork& network_;
  std::vector<PlanNode> new_of_;         // by old node; kNone: lost
  std::vector<std::uint32_t> feeds_in_;  // by new node: the one stripe in which it has children
  double weight_sum_ = 0;
  std::vector<MendedTree> trees_;
};

}  // namespace

PlanIndex::PlanIndex(const Plan& plan) : plan_(plan) {
  nodes_.reserve(plan.members.size() + 1);
  nodes_.emplace(kOriginId, kOriginNode);
  for (PlanNode node = 1; node <= plan.members.size(); ++node) nodes_.emplace(plan.members[node - 1], node);
  parents_ = parents_by_node(plan, nodes_);
  views_.reserve(parents_.size());
  for (const auto& parents : parents_) views_.emplace_back(parents);
}

std::vector<PeerId> PlanIndex::ancestors_of(PeerId member, std::uint32_t stripe) const {
  WC_CHECK(contains(member) && stripe < parents_.size());
  std::vector<PeerId> ancestors;
  PlanNode node = parents_[stripe][nodes_.at(member)];
  while (node != kOriginNode && ancestors.size() + 1 < kAncestorsMax) {
    ancestors.push_back(id_of(node));
    node = parents_[stripe][node];
  }
  ancestors.push_back(kOriginId);
  return ancestors;
}

Plan repair_plan(const Plan& plan, const PlanRequest& request) {
  if (plan.stripes.empty() || request.members.empty()) {
    PlanRequest anew = request;
    if (plan.chunk_bytes != 0) anew.chunk_bytes = plan.chunk_bytes;
    return make_plan(anew);
  }
  const PlanNetwork network = network_of(request);
  const PlanIndex index(plan);
  const Forest forest = Repair(plan, index.parents_, index.views_, index.nodes_, request, network).run(plan);
  return plan_from(request, network, plan.topology, forest, plan.chunk_bytes,
                   evaluate(network, forest, plan.chunk_bytes));
}

}  // namespace weightcast
