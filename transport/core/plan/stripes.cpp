#include "transport/core/plan/stripes.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/result.h"

namespace weightcast {
namespace {

// The golden ratio without its whole part in units of 2^-32: integers, so that every machine rounds alike.
constexpr std::uint32_t kGolden = 2654435769;

}  // namespace

bool are_stripe_weights(std::span<const std::uint32_t> weights) {
  if (weights.empty() || weights.size() > kStripesMax) return false;
  const auto [least, most] = std::ranges::minmax(weights);
  const auto sum = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  return least >= 1 && most <= kStripeWeightMax && sum <= std::uint64_t{kStripeShareMin} * least;
}

StripeMap::StripeMap(std::span<const std::uint32_t> weights) : count_(static_cast<std::uint32_t>(weights.size())) {
  WC_CHECK(are_stripe_weights(weights));
  equal_ = std::ranges::adjacent_find(weights, std::not_equal_to()) == weights.end();
  const auto sum = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  std::uint64_t before = 0;
  for (std::size_t stripe = 0; stripe < weights.size(); ++stripe) {
    before += weights[stripe];
    ends_[stripe] = (before << 32) / sum;
  }
}

std::uint32_t StripeMap::stripe_of(ChunkIndex chunk) const {
  if (equal_) return chunk.value % count_;
  const std::uint32_t place = chunk.value * kGolden;  // modulo 2^32: the whole part is lost
  return static_cast<std::uint32_t>(std::upper_bound(ends_.begin(), ends_.begin() + count_, place) - ends_.begin());
}

}  // namespace weightcast
