#pragma once

#include <algorithm>
#include <vector>

#include "transport/core/plan/plan_repair.h"

namespace weightcast {

/// PlanIndex::ancestors_of(), for a single question.
inline std::vector<PeerId> ancestors_of(const Plan& plan, PeerId member, std::uint32_t stripe) {
  return PlanIndex(plan).ancestors_of(member, stripe);
}

/// Whom `node`, which may be the origin, feeds, in rank order. A node outside of the plan feeds nobody.
inline std::vector<PeerId> children_of(const Plan& plan, PeerId node, std::uint32_t stripe) {
  const PlanIndex index(plan);
  std::vector<PeerId> children;
  std::ranges::copy_if(plan.members, std::back_inserter(children),
                       [&](PeerId member) { return index.ancestors_of(member, stripe).front() == node; });
  return children;
}

}  // namespace weightcast
