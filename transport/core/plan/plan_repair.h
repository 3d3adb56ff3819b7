#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "transport/core/plan/plan.h"
#include "transport/core/plan/plan_evaluate.h"

namespace weightcast {

/// Answers who feeds whom in one plan, which must outlive it. Making one costs O(n * stripes).
class PlanIndex {
 public:
  explicit PlanIndex(const Plan& plan);

  [[nodiscard]] bool contains(PeerId member) const { return nodes_.contains(member) && member != kOriginId; }
  /// Where in Plan::members; `member` must be in the plan.
  [[nodiscard]] std::size_t place_of(PeerId member) const { return nodes_.at(member) - 1; }

  /// The parent, its parent and so on, the origin last; at most the nearest kAncestorsMax - 1 and the origin. A child
  /// dials down this list when its parent fails. `member` must be in the plan.
  [[nodiscard]] std::vector<PeerId> ancestors_of(PeerId member, std::uint32_t stripe) const;

 private:
  friend Plan repair_plan(const Plan& plan, const PlanRequest& request);

  [[nodiscard]] PeerId id_of(PlanNode node) const { return node == kOriginNode ? kOriginId : plan_.members[node - 1]; }

  const Plan& plan_;
  std::unordered_map<PeerId, PlanNode> nodes_;
  std::vector<std::vector<PlanNode>> parents_;  // by stripe and node
  std::vector<TreeView> views_;                 // by stripe
};

/// Fits a plan in use to the members of now, and moves as few as it can. `request` has the members and their rates in
/// rank order. A member of the plan that is not in the request is lost; one that cannot relay any more is demoted. A
/// member of the request that is not in the plan is a late joiner. The plan's payload and topology count, not the
/// request's: stripes keep their weights and chunks their size, because both are in use.
/// - An orphan moves to its nearest ancestor that can still relay, which is the one that it dials by itself. An
///   ancestor takes as many orphans as it lost children; the others are placed like joiners.
/// - A child that is to be kept apart from its parent is an orphan. A parent that is to be kept apart from all its
///   children gives its place to them, as a demoted one does, and may feed others.
/// - A demoted member becomes a leaf at the tail of its chain, behind its former children; where that tail is known to
///   be much slower than others, it goes where a joiner would.
/// - A joiner goes where it receives fastest; of several such places it takes the one nearest the origin. In chains
///   that is the tail of the shortest chain.
/// `finish` is predicted as if the payload began anew. Deterministic. Cost: O(n * stripes), and O(n) for each member
/// that is placed.
[[nodiscard]] Plan repair_plan(const Plan& plan, const PlanRequest& request);

}  // namespace weightcast
