#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/result.h"
#include "proto/limits.h"
#include "transport/core/plan/plan_topologies.h"
#include "transport/core/plan/stripes.h"

namespace weightcast {
namespace {

constexpr std::uint32_t kWeightScale = 256;  // a stripe's share is exact to 0.4 % of the largest
// Of the largest stripe: below this are_stripe_weights() may refuse them when each is split among streams.
constexpr std::uint32_t kWeightMin = kWeightScale / 16;
static_assert(kStripesMax * kWeightScale <= kStripeShareMin * kWeightMin);
constexpr double kSlowDownlink = 0.8;  // of the median: below this a member would hold up those under it
constexpr int kBisections = 40;

/// The relays of each stripe, so that the stripes' uplinks differ little: the largest first, each to the stripe with
/// the least so far (Graham's LPT rule).
std::vector<std::vector<PlanNode>> deal_relays(const PlanNetwork& network, std::vector<PlanNode> relays,
                                               std::uint32_t stripe_count) {
  std::stable_sort(relays.begin(), relays.end(),
                   [&](PlanNode a, PlanNode b) { return network.uplink[a] > network.uplink[b]; });
  std::vector<std::vector<PlanNode>> dealt(stripe_count);
  std::vector<double> sums(stripe_count);
  for (const PlanNode relay : relays) {
    const auto least = static_cast<std::size_t>(std::min_element(sums.begin(), sums.end()) - sums.begin());
    dealt[least].push_back(relay);
    sums[least] += network.uplink[relay];
  }
  return dealt;
}

/// A stripe's share of the payload is its relays' share of all uplinks; equal ones give weights of 1, and
/// none is below kWeightMin / kWeightScale of the largest.
std::vector<std::uint32_t> weights_of(const PlanNetwork& network, const std::vector<std::vector<PlanNode>>& dealt) {
  std::vector<double> sums;
  for (const auto& relays : dealt) {
    double& sum = sums.emplace_back();
    for (const PlanNode relay : relays) sum += network.uplink[relay];
  }
  const double largest = *std::max_element(sums.begin(), sums.end());
  std::vector<std::uint32_t> weights;
  std::uint32_t divisor = 0;
  for (const double sum : sums) {
    weights.push_back(
        static_cast<std::uint32_t>(std::max<double>(kWeightMin, std::round(kWeightScale * sum / largest))));
    divisor = std::gcd(divisor, weights.back());
  }
  for (std::uint32_t& weight : weights) weight /= divisor;
  return weights;
}

/// The greatest x in (0, x_max] for which `fits` holds; it must hold for all smaller ones too.
double greatest(double x_max, const auto& fits) {
  if (fits(x_max)) return x_max;
  double low = 0, high = x_max;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

/// Chooses how many children everyone has in the stripe where it relays, and the origin in each.
class SlotPlanner {
 public:
  SlotPlanner(const PlanNetwork& network, const std::vector<std::vector<PlanNode>>& dealt,
              const std::vector<std::uint32_t>& weights)
      : network_(network), dealt_(dealt), weight_sum_(std::accumulate(weights.begin(), weights.end(), 0.0)) {
    for (const std::uint32_t weight : weights) shares_.push_back(weight / weight_sum_);
  }

  /// The greatest rate, at most `rate_max`, at which whole numbers of children cover everyone.
  [[nodiscard]] double rate(double rate_max) const {
    return greatest(rate_max, [&](double rate) {
      double origin_load = 0;
      for (std::size_t s = 0; s < dealt_.size(); ++s) origin_load += shares_[s] * origin_slots_needed(s, rate);
      return origin_load * rate <= network_.uplink[kOriginNode];
    });
  }

  /// The origin's children per stripe: what is needed, then as many more as its uplink can feed, which makes the trees
  /// flatter and leaves the relays some room.
  [[nodiscard]] std::vector<std::uint32_t> origin_slots(double rate) const {
    double budget = network_.uplink[kOriginNode] / rate * (1 + 1e-9);
    std::vector<std::uint32_t> slots;
    for (std::size_t s = 0; s < dealt_.size(); ++s) {
      slots.push_back(origin_slots_needed(s, rate));
      budget -= shares_[s] * slots.back();
    }
    for (bool grown = true; grown;) {
      grown = false;
      for (std::size_t s = 0; s < dealt_.size(); ++s) {
        if (slots[s] == network_.member_count() || budget < shares_[s]) continue;
        budget -= shares_[s];
        ++slots[s];
        grown = true;
      }
    }
    return slots;
  }

  /// Fills in the relays of one stripe, so that together they cover whom the origin does not, each in proportion to its
  /// uplink.
  void share_out(std::size_t stripe, std::uint32_t from_origin, std::span<std::uint32_t> slots) const {
    const std::uint32_t wanted = network_.member_count() - from_origin;
    double up_max = 0;
    for (const PlanNode relay : dealt_[stripe]) up_max = std::max(up_max, network_.uplink[relay]);
    const double rate = greatest(up_max / shares_[stripe], [&](double x) { return slots_at(stripe, x) >= wanted; });
    for (const PlanNode relay : dealt_[stripe]) slots[relay] = slots_of(stripe, relay, rate);
  }

 private:
  [[nodiscard]] std::uint32_t slots_of(std::size_t stripe, PlanNode relay, double rate) const {
    const double children = network_.uplink[relay] / (shares_[stripe] * rate) * (1 + 1e-9);
    return static_cast<std::uint32_t>(std::min(children, double(network_.member_count())));
  }
  [[nodiscard]] std::uint64_t slots_at(std::size_t stripe, double rate) const {
    std::uint64_t slots = 0;
    for (const PlanNode relay : dealt_[stripe]) slots += slots_of(stripe, relay, rate);
    return slots;
  }
  [[nodiscard]] std::uint32_t origin_slots_needed(std::size_t stripe, double rate) const {
    const std::uint64_t covered = slots_at(stripe, rate);
    const std::uint32_t members = network_.member_count();
    return covered + 1 >= members ? 1 : static_cast<std::uint32_t>(members - covered);
  }

  const PlanNetwork& network_;
  const std::vector<std::vector<PlanNode>>& dealt_;
  const double weight_sum_;
  std::vector<double> shares_;
};

Forest striped_forest(const PlanNetwork& network, const std::vector<PlanNode>& relays, std::uint32_t stripe_count,
                      double rate_max) {
  const auto dealt = deal_relays(network, relays, stripe_count);
  const auto weights = weights_of(network, dealt);
  const SlotPlanner planner(network, dealt, weights);
  const std::vector<std::uint32_t> origin_slots = planner.origin_slots(planner.rate(rate_max));

  std::vector<std::vector<std::uint32_t>> slots(stripe_count, std::vector<std::uint32_t>(network.node_count()));
  std::vector<std::vector<PlanNode>> interior = dealt;
  // How much of its payload each member gets from the origin.
  std::vector<std::uint32_t> from_origin(network.node_count());
  std::vector<std::uint32_t> stripe_of(network.node_count());  // where it relays; 0 for those who do nowhere
  for (std::uint32_t s = 0; s < stripe_count; ++s) {
    slots[s][kOriginNode] = origin_slots[s];
    planner.share_out(s, origin_slots[s], slots[s]);
    std::stable_sort(interior[s].begin(), interior[s].end(),
                     [&](PlanNode a, PlanNode b) { return slots[s][a] > slots[s][b]; });
    for (const PlanNode relay : interior[s]) stripe_of[relay] = s;
    const std::size_t fed = std::min<std::size_t>(origin_slots[s], interior[s].size());
    for (std::size_t i = 0; i < fed; ++i) from_origin[interior[s][i]] += weights[s];
  }

  Forest forest;
  for (std::uint32_t s = 0; s < stripe_count; ++s) {
    std::vector<bool> is_interior(network.node_count());
    for (const PlanNode relay : interior[s]) is_interior[relay] = true;
    std::vector<PlanNode> others;
    for (PlanNode node = 1; node < network.node_count(); ++node) {
      if (!is_interior[node]) others.push_back(node);
    }
    // The origin's uplink is shared among connections, not among stripes, and by whatever is fair to TCP: so each
    // member is to get about as much of its payload from there as the others. Of equals first who has fewer stripes
    // left.
    std::stable_sort(others.begin(), others.end(), [&](PlanNode a, PlanNode b) {
      return std::pair(from_origin[a], stripe_of[a] < s) < std::pair(from_origin[b], stripe_of[b] < s);
    });
    forest.push_back({weights[s], fill_breadth_first(network, interior[s], others, slots[s])});
    for (const PlanNode other : others) {
      if (forest.back().parents[other] == kOriginNode) from_origin[other] += weights[s];
    }
  }
  return forest;
}

}  // namespace

std::vector<Forest> striped_candidates(const PlanNetwork& network) {
  std::vector<double> downlinks(network.downlink.begin() + 1, network.downlink.end());
  const auto middle = downlinks.begin() + static_cast<std::ptrdiff_t>(downlinks.size() / 2);
  std::nth_element(downlinks.begin(), middle, downlinks.end());
  const double rate_max = std::min(*middle, network.uplink[kOriginNode]);

  std::vector<PlanNode> relays;
  for (PlanNode node = 1; node < network.node_count(); ++node) {
    if (network.can_relay[node] && network.downlink[node] >= kSlowDownlink * rate_max) relays.push_back(node);
  }
  std::vector<Forest> candidates;
  for (const std::uint32_t stripes : {2u, 3u, 4u, 6u, 8u, 12u, 16u, 32u}) {
    static_assert(32 <= kStripesMax);
    if (stripes > relays.size()) break;
    candidates.push_back(striped_forest(network, relays, stripes, rate_max));
  }
  if (candidates.empty()) candidates.push_back(star_forest(network));  // fewer than two who can relay
  return candidates;
}

}  // namespace weightcast
