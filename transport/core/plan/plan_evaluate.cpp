#include "transport/core/plan/plan_evaluate.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>
#include <unordered_map>

#include "base/result.h"
#include "proto/limits.h"

namespace weightcast {
namespace {

constexpr double kFillShareMax = 0.008;
constexpr std::uint64_t kChunkBytesPreferredMin = 16 * kKiB;
constexpr std::uint64_t kChunkBytesPreferredMax = kMiB;
constexpr std::uint64_t kTinyPayloadBytes = kMiB;
// Of the other members: a relay that fewer can use costs the plan more than it brings. Subnets lose less.
constexpr double kLostMax = 7.0 / 8;

void note_apart(const PlanRequest& request, PlanNetwork& network) {
  for (PlanNode node = 1; node < network.node_count(); ++node) {
    if (!request.members[node - 1].only_from_origin) continue;
    network.only_from_origin.resize(network.node_count());
    network.only_from_origin[node] = true;
  }
  if (request.apart.empty()) return;
  std::unordered_map<PeerId, PlanNode> nodes;
  for (PlanNode node = 1; node < network.node_count(); ++node) nodes.emplace(request.members[node - 1].id, node);
  std::vector<std::uint32_t> children_lost(network.node_count());
  for (const ApartPair& pair : request.apart) {
    const auto parent = nodes.find(pair.parent), child = nodes.find(pair.child);
    if (parent == nodes.end() || child == nodes.end()) continue;
    if (network.apart.insert({parent->second, child->second}).second) ++children_lost[parent->second];
  }
  for (PlanNode node = 1; node < network.node_count(); ++node) {
    if (children_lost[node] > kLostMax * (network.member_count() - 1)) network.can_relay[node] = false;
  }
}

double rate_or_unknown(Rate rate) { return rate.limited() ? rate.bytes_per_s : kRateWhenUnknown.bytes_per_s; }

/// Progressive filling. The water level is a rate per unit of stripe weight; an edge that is frozen at level x
/// carries weight * x.
/// Invariant: a link's level never falls, because what freezes elsewhere froze below it; so a stale level in the queue
/// is a lower bound, and recomputing it when it comes up is enough.
class Filling {
 public:
  Filling(const PlanNetwork& network, const Forest& forest, const std::vector<TreeView>& views)
      : forest_(forest), views_(views), nodes_(network.node_count()) {
    links_.resize(2 * nodes_);
    for (PlanNode node = 0; node < nodes_; ++node) {
      links_[uplink_of(node)].left = network.uplink[node];
      links_[downlink_of(node)].left = network.downlink[node];
    }
    for (const StripeTree& tree : forest) {
      for (PlanNode node = 1; node < nodes_; ++node) {
        links_[uplink_of(tree.parents[node])].active_weight += tree.weight;
        links_[downlink_of(node)].active_weight += tree.weight;
      }
    }
    levels_.assign(forest.size(), std::vector<double>(nodes_, kActive));
  }

  /// The level of every edge, by stripe and child.
  std::vector<std::vector<double>> run() && {
    for (std::uint32_t link = 0; link < links_.size(); ++link) {
      if (links_[link].active_weight > 0) queue_.push({links_[link].level(), link});
    }
    while (!queue_.empty()) {
      const auto [level, link] = queue_.top();
      queue_.pop();
      if (links_[link].active_weight == 0) continue;
      const double now = links_[link].level();
      if (now > level) {
        queue_.push({now, link});
      } else {
        // A sum of rounded rates may leave a link a hair lower than it was queued: the queued level is the truth.
        freeze_edges_of(link, level);
      }
    }
    return std::move(levels_);
  }

 private:
  static constexpr double kActive = -1;

  struct Link {
    double left = 0;
    std::uint64_t active_weight = 0;
    [[nodiscard]] double level() const { return left / double(active_weight); }
  };

  struct Queued {
    double level;
    std::uint32_t link;
    bool operator>(const Queued& other) const { return level != other.level ? level > other.level : link > other.link; }
  };

  [[nodiscard]] std::uint32_t uplink_of(PlanNode node) const { return node; }
  [[nodiscard]] std::uint32_t downlink_of(PlanNode node) const { return nodes_ + node; }

  void freeze_edges_of(std::uint32_t link, double level) {
    for (std::size_t stripe = 0; stripe < forest_.size(); ++stripe) {
      if (link >= nodes_) {
        freeze_subtree(stripe, link - nodes_, level);
      } else {
        for (const PlanNode child : views_[stripe].children(link)) freeze_subtree(stripe, child, level);
      }
    }
  }

  /// An edge that no longer grows holds everything below it, for nobody receives faster than his parent.
  void freeze_subtree(std::size_t stripe, PlanNode top, double level) {
    if (levels_[stripe][top] != kActive) return;
    stack_.push_back(top);
    while (!stack_.empty()) {
      const PlanNode node = stack_.back();
      stack_.pop_back();
      if (levels_[stripe][node] != kActive) continue;
      levels_[stripe][node] = level;
      const std::uint32_t weight = forest_[stripe].weight;
      for (const std::uint32_t link : {uplink_of(forest_[stripe].parents[node]), downlink_of(node)}) {
        links_[link].left = std::max(0.0, links_[link].left - weight * level);
        links_[link].active_weight -= weight;
      }
      for (const PlanNode child : views_[stripe].children(node)) stack_.push_back(child);
    }
  }

  const Forest& forest_;
  const std::vector<TreeView>& views_;
  const std::uint32_t nodes_;
  std::vector<Link> links_;
  std::vector<std::vector<double>> levels_;
  std::priority_queue<Queued, std::vector<Queued>, std::greater<>> queue_;
  std::vector<PlanNode> stack_;
};

}  // namespace

PlanNetwork network_of(const PlanRequest& request) {
  PlanNetwork network;
  const std::size_t nodes = request.members.size() + 1;
  network.uplink.reserve(nodes);
  network.downlink.reserve(nodes);
  network.can_relay.reserve(nodes);
  network.uplink.push_back(rate_or_unknown(request.origin_uplink));
  network.downlink.push_back(kRateWhenUnknown.bytes_per_s);
  network.can_relay.push_back(true);
  for (const PlanMember& member : request.members) {
    network.uplink.push_back(rate_or_unknown(member.uplink));
    network.downlink.push_back(rate_or_unknown(member.downlink));
    network.can_relay.push_back(member.can_relay);
  }
  network.payload_bytes = static_cast<double>(request.payload_bytes);
  network.hop_s = to_seconds(request.hop_delay);
  note_apart(request, network);
  return network;
}

TreeView::TreeView(std::span<const PlanNode> parents) : first_(parents.size() + 1), children_(parents.size() - 1) {
  for (PlanNode node = 1; node < parents.size(); ++node) ++first_[parents[node] + 1];
  for (std::size_t node = 1; node < first_.size(); ++node) first_[node] += first_[node - 1];
  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  for (PlanNode node = 1; node < parents.size(); ++node) children_[next[parents[node]]++] = node;
}

std::vector<PlanNode> TreeView::top_down() const {
  std::vector<PlanNode> order;
  order.reserve(children_.size());
  const auto append_children = [&](PlanNode node) {
    for (const PlanNode child : children(node)) order.push_back(child);
  };
  append_children(kOriginNode);
  for (std::size_t i = 0; i < order.size(); ++i) append_children(order[i]);
  WC_CHECK(order.size() == children_.size());  // a cycle is never reached from the origin
  return order;
}

std::uint32_t TreeView::depth() const {
  std::vector<std::uint32_t> depths(first_.size() - 1);
  std::uint32_t deepest = 0;
  const auto descend = [&](PlanNode node) {
    for (const PlanNode child : children(node)) deepest = std::max(deepest, depths[child] = depths[node] + 1);
  };
  descend(kOriginNode);
  for (const PlanNode node : top_down()) descend(node);
  return deepest;
}

Forecast evaluate(const PlanNetwork& network, const Forest& forest, std::uint32_t chunk_bytes) {
  std::vector<TreeView> views;
  views.reserve(forest.size());
  double weight_sum = 0;
  for (const StripeTree& tree : forest) {
    views.emplace_back(tree.parents);
    weight_sum += tree.weight;
  }
  const auto levels = Filling(network, forest, views).run();

  Forecast forecast;
  const std::uint32_t members = network.member_count();
  forecast.rates.resize(members);
  forecast.finish_s.resize(members);
  std::vector<double> start_s(network.node_count());
  for (std::size_t stripe = 0; stripe < forest.size(); ++stripe) {
    const double share_bytes = network.payload_bytes * forest[stripe].weight / weight_sum;
    const double first_bytes = std::min(share_bytes, double(chunk_bytes));
    const auto rate_of = [&](PlanNode node) { return levels[stripe][node] * forest[stripe].weight; };
    for (const PlanNode node : views[stripe].top_down()) {
      const PlanNode parent = forest[stripe].parents[node];
      start_s[node] = parent == kOriginNode ? 0 : start_s[parent] + first_bytes / rate_of(parent) + network.hop_s;
      forecast.rates[node - 1] += rate_of(node);
      double& finish_s = forecast.finish_s[node - 1];
      finish_s = std::max(finish_s, start_s[node] + share_bytes / rate_of(node));
    }
  }
  for (const double finish_s : forecast.finish_s) {
    forecast.t100_s = std::max(forecast.t100_s, finish_s);
    forecast.mean_s += finish_s / members;
  }
  return forecast;
}

std::uint32_t choose_chunk_bytes(std::uint64_t payload_bytes, std::uint32_t depth, std::uint32_t stripe_count) {
  // A relay waits for a whole chunk of a stripe, which arrives at that stripe's share of the rate only.
  const std::uint64_t in_pipeline = std::uint64_t{std::max(depth, 2u) - 1} * stripe_count;
  const auto fitting = static_cast<std::uint64_t>(kFillShareMax * double(payload_bytes) / double(in_pipeline));
  const std::uint64_t least = payload_bytes < kTinyPayloadBytes ? kChunkBytesMin : kChunkBytesPreferredMin;
  std::uint64_t chunk_bytes = std::clamp(std::bit_floor(fitting), least, kChunkBytesPreferredMax);
  while (chunk_bytes < kChunkBytesMax && (payload_bytes + chunk_bytes - 1) / chunk_bytes > kChunksMax) chunk_bytes *= 2;
  return static_cast<std::uint32_t>(chunk_bytes);
}

double bound_s(const PlanNetwork& network) {
  double slowest = network.uplink[kOriginNode];
  double sent_together = network.uplink[kOriginNode];
  for (PlanNode node = 1; node < network.node_count(); ++node) {
    slowest = std::min(slowest, network.downlink[node]);
    if (network.can_relay[node]) sent_together += network.uplink[node];
  }
  if (network.member_count() > 0) slowest = std::min(slowest, sent_together / network.member_count());
  return network.payload_bytes / slowest;
}

Plan plan_from(const PlanRequest& request, const PlanNetwork& network, Topology topology, const Forest& forest,
               std::uint32_t chunk_bytes, const Forecast& forecast) {
  Plan plan;
  plan.topology = topology;
  plan.chunk_bytes = chunk_bytes;
  for (const PlanMember& member : request.members) plan.members.push_back(member.id);
  for (const StripeTree& tree : forest) {
    StripePlan& stripe = plan.stripes.emplace_back();
    stripe.weight = tree.weight;
    for (PlanNode node = 1; node < network.node_count(); ++node) {
      const PlanNode parent = tree.parents[node];
      stripe.parents.push_back(parent == kOriginNode ? kOriginId : plan.members[parent - 1]);
    }
  }
  for (const double rate : forecast.rates) plan.rates.push_back(Rate{rate});
  for (const double finish_s : forecast.finish_s) plan.finish.push_back(from_seconds(finish_s));
  plan.predicted_t100 = plan.predicted(1.0);
  plan.bound = from_seconds(bound_s(network));
  return plan;
}

}  // namespace weightcast
