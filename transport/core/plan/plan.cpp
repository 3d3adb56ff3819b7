#include "transport/core/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "transport/core/plan/plan_evaluate.h"
#include "transport/core/plan/plan_topologies.h"

namespace weightcast {
namespace {

/// Predictions closer than this count as equal: the measured rates behind them are no better.
constexpr double kEqual = 1.01;

struct Candidate {
  Topology topology;
  Forest forest;
  std::uint32_t chunk_bytes;
  Forecast forecast;
};

void add_candidates(std::vector<Candidate>& candidates, const PlanRequest& request, const PlanNetwork& network,
                    Topology topology, std::vector<Forest> forests) {
  for (Forest& forest : forests) {
    std::uint32_t depth = 0;
    for (const StripeTree& tree : forest) depth = std::max(depth, TreeView(tree.parents).depth());
    const std::uint32_t chunk_bytes = request.chunk_bytes.value_or(
        choose_chunk_bytes(request.payload_bytes, depth, static_cast<std::uint32_t>(forest.size())));
    Forecast forecast = evaluate(network, forest, chunk_bytes);
    candidates.push_back({topology, std::move(forest), chunk_bytes, std::move(forecast)});
  }
}

std::vector<Candidate> candidates_for(const PlanRequest& request, const PlanNetwork& network) {
  const bool all = request.topology == Topology::kAuto;
  std::vector<Candidate> candidates;  // simplest first: that decides between equals
  if (all || request.topology == Topology::kStar) {
    add_candidates(candidates, request, network, Topology::kStar, {star_forest(network)});
  }
  if (all || request.topology == Topology::kChain) {
    add_candidates(candidates, request, network, Topology::kChain, chain_candidates(network));
  }
  if (all || request.topology == Topology::kTree) {
    add_candidates(candidates, request, network, Topology::kTree, tree_candidates(network));
  }
  if (all || request.topology == Topology::kStriped) {
    add_candidates(candidates, request, network, Topology::kStriped, striped_candidates(network));
  }
  return candidates;
}

/// The least t100; among equals the least mean, so that one slow member, who decides t100 wherever he stands, does not
/// hide what the others would lose; among equals in both the simplest.
const Candidate& best_of(const std::vector<Candidate>& candidates) {
  double t100_s = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) t100_s = std::min(t100_s, candidate.forecast.t100_s);
  double mean_s = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) {
    if (candidate.forecast.t100_s <= t100_s * kEqual) mean_s = std::min(mean_s, candidate.forecast.mean_s);
  }
  const auto best = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return candidate.forecast.t100_s <= t100_s * kEqual && candidate.forecast.mean_s <= mean_s * kEqual;
  });
  WC_CHECK(best != candidates.end());
  return *best;
}

}  // namespace

Result<Topology> parse_topology(std::string_view text) { return parse_word<Topology>("topology", text); }

Duration Plan::predicted(double rho) const {
  WC_CHECK(rho > 0 && rho <= 1);
  if (finish.empty()) return Duration::zero();
  std::vector<Duration> sorted = finish;
  const auto count = static_cast<std::size_t>(std::ceil(rho * double(sorted.size()) - 1e-9));
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(count, 1) - 1);
  std::nth_element(sorted.begin(), at, sorted.end());
  return *at;
}

Plan make_plan(const PlanRequest& request) {
  Plan plan;
  plan.topology = request.topology == Topology::kAuto ? Topology::kStar : request.topology;
  plan.chunk_bytes = request.chunk_bytes.value_or(choose_chunk_bytes(request.payload_bytes, 1, 1));
  if (request.members.empty()) return plan;

  const PlanNetwork network = network_of(request);
  const std::vector<Candidate> candidates = candidates_for(request, network);
  const Candidate& best = best_of(candidates);
  return plan_from(request, network, best.topology, best.forest, best.chunk_bytes, best.forecast);
}

std::vector<PeerId> parents_of(const Plan& plan, PeerId member) {
  std::vector<PeerId> parents;
  const auto at = static_cast<std::size_t>(std::ranges::find(plan.members, member) - plan.members.begin());
  for (const StripePlan& stripe : plan.stripes) {
    if (at < stripe.parents.size()) parents.push_back(stripe.parents[at]);
  }
  return parents;
}

bool is_relay(const Plan& plan, PeerId member) {
  return std::ranges::any_of(plan.stripes,
                             [&](const StripePlan& stripe) { return std::ranges::count(stripe.parents, member) > 0; });
}

}  // namespace weightcast
