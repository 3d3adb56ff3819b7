#include "transport/core/plan/stripes.h"

#include <algorithm>
#include <numeric>

#include "base/result.h"
#include "proto/limits.h"

namespace weightcast {

bool are_stripe_weights(std::span<const std::uint32_t> weights) {
  return !weights.empty() && weights.size() <= kStripesMax &&
         std::ranges::all_of(weights, [](std::uint32_t weight) { return weight >= 1 && weight <= kStripeWeightMax; });
}

StripeMap::StripeMap(std::span<const std::uint32_t> weights) : count_(static_cast<std::uint32_t>(weights.size())) {
  WC_CHECK(are_stripe_weights(weights));
  if (weights.size() == 1) return;

  // Each round every stripe gains its weight in credit, and the richest pays one round's worth for the chunk; the first
  // wins a tie, so that every node computes the same pattern.
  const auto sum = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  std::vector<std::int64_t> credit(weights.size());
  pattern_.reserve(static_cast<std::size_t>(sum));
  for (std::int64_t round = 0; round < sum; ++round) {
    std::size_t richest = 0;
    for (std::size_t stripe = 0; stripe < weights.size(); ++stripe) {
      credit[stripe] += weights[stripe];
      if (credit[stripe] > credit[richest]) richest = stripe;
    }
    credit[richest] -= sum;
    pattern_.push_back(static_cast<std::uint8_t>(richest));
  }
}

}  // namespace weightcast
