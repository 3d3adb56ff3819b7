#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "transport/core/plan/plan.h"

namespace weightcast {

/// A node as the planner numbers it: 0 is the origin, i + 1 is the i-th member of the request.
using PlanNode = std::uint32_t;
inline constexpr PlanNode kOriginNode = 0;

/// The request as plain numbers: rates in bytes/s with "no limit" replaced by kRateWhenUnknown, times in seconds.
struct PlanNetwork {
  std::vector<double> uplink;                       ///< by node; the origin's is B
  std::vector<double> downlink;                     ///< by node; the origin's is unused
  std::vector<bool> can_relay;                      ///< by node
  std::vector<bool> only_from_origin{};             ///< by node; empty: nobody
  std::set<std::pair<PlanNode, PlanNode>> apart{};  ///< parent and child
  double payload_bytes = 0;
  double hop_s = 0;

  [[nodiscard]] std::uint32_t member_count() const { return static_cast<std::uint32_t>(uplink.size() - 1); }
  [[nodiscard]] std::uint32_t node_count() const { return static_cast<std::uint32_t>(uplink.size()); }
  /// Whether some node is limited in whom it may be fed by.
  [[nodiscard]] bool has_apart() const { return !apart.empty() || !only_from_origin.empty(); }
  [[nodiscard]] bool is_only_from_origin(PlanNode node) const {
    return !only_from_origin.empty() && only_from_origin[node];
  }
  [[nodiscard]] bool are_apart(PlanNode parent, PlanNode child) const {
    return parent != kOriginNode && (is_only_from_origin(child) || apart.contains({parent, child}));
  }
  [[nodiscard]] bool may_feed(PlanNode parent, PlanNode child) const {
    return can_relay[parent] && !are_apart(parent, child);
  }
  /// What a node can pass on of what it receives.
  [[nodiscard]] double through(PlanNode node) const {
    return uplink[node] < downlink[node] ? uplink[node] : downlink[node];
  }
};

/// Who is apart from more than seven eighths of the other members cannot relay there.
[[nodiscard]] PlanNetwork network_of(const PlanRequest& request);

/// One stripe of a candidate: `parents[node]` feeds `node`; parents[kOriginNode] is unused.
struct StripeTree {
  std::uint32_t weight = 1;
  std::vector<PlanNode> parents;
};

/// A candidate: one tree per stripe, all with the origin as root.
using Forest = std::vector<StripeTree>;

/// The children of every node of one tree, in node order, and the nodes in an order in which parents come first.
class TreeView {
 public:
  explicit TreeView(std::span<const PlanNode> parents);

  [[nodiscard]] std::span<const PlanNode> children(PlanNode node) const {
    return std::span(children_).subspan(first_[node], first_[node + 1] - first_[node]);
  }
  /// Without the origin. Stops the process if the parents do not form a tree.
  [[nodiscard]] std::vector<PlanNode> top_down() const;
  /// Edges on the longest way from the origin.
  [[nodiscard]] std::uint32_t depth() const;

 private:
  std::vector<std::uint32_t> first_;
  std::vector<PlanNode> children_;
};

/// What is expected of a forest; all by member (not by node).
struct Forecast {
  std::vector<double> rates;     ///< bytes/s
  std::vector<double> finish_s;  ///< last chunk received, after the first is offered
  double t100_s = 0;
  double mean_s = 0;
};

/// Predicts rates by weighted max-min fairness: every edge grows in proportion to its stripe's weight until its
/// parent's uplink or its child's downlink is full or its parent receives no faster (progressive filling, Bertsekas
/// and Gallager, Data Networks, 6.5.2). A member then finishes a stripe after the pipeline in front of it has filled
/// and its share has arrived: sum over the relays above of (chunk / rate of the relay + hop) + share / rate. The first
/// hop costs no fill, as the origin holds everything. Cost: O(E log E) for E = stripes * members.
[[nodiscard]] Forecast evaluate(const PlanNetwork& network, const Forest& forest, std::uint32_t chunk_bytes);

/// The chunk size for a forest: the largest power of two, at most 1 MiB, for which the chunks in the deepest pipeline
/// are at most 0.8 % of the payload; at least 16 KiB (4 KiB for payloads below 1 MiB), and larger where a payload
/// would have more than kChunksMax chunks.
[[nodiscard]] std::uint32_t choose_chunk_bytes(std::uint64_t payload_bytes, std::uint32_t depth,
                                               std::uint32_t stripe_count);

/// No topology can be faster than this, in seconds: the origin must send everything once, everyone must receive
/// everything, and all who can send must together send it n times.
[[nodiscard]] double bound_s(const PlanNetwork& network);

/// A forest and its forecast in the request's own words.
[[nodiscard]] Plan plan_from(const PlanRequest& request, const PlanNetwork& network, Topology topology,
                             const Forest& forest, std::uint32_t chunk_bytes, const Forecast& forecast);

}  // namespace weightcast
