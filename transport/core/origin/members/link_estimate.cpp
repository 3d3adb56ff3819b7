#include "transport/core/origin/members/link_estimate.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weightcast {
namespace {

// 80 Tbit/s: what is beyond is no link.
constexpr double kBytesPerSecondMax = 1e13;
constexpr double kSame = 0.8;

bool is_rate(Rate rate) {
  return std::isfinite(rate.bytes_per_s) && rate.bytes_per_s > 0 && rate.bytes_per_s <= kBytesPerSecondMax;
}

}  // namespace

void LinkEstimate::handle_measured(Rate rate) {
  if (is_rate(rate)) rate_ = rate;
}

void LinkEstimate::handle_reached(Rate rate) {
  if (known() && is_rate(rate)) rate_ = std::max(rate_, rate);
}

Rate planned_rate(Rate cap, const LinkEstimate& estimate) {
  if (!cap.limited() || (estimate.known() && estimate.rate().bytes_per_s * kMissFactor < cap.bytes_per_s)) {
    return estimate.rate();
  }
  return cap;
}

void even_out(std::span<Rate*> rates) {
  std::vector<Rate*> fastest_first;
  std::ranges::copy_if(rates, std::back_inserter(fastest_first), [](const Rate* rate) { return rate->limited(); });
  std::ranges::sort(fastest_first, [](const Rate* a, const Rate* b) { return *a > *b; });
  for (auto first = fastest_first.begin(); first != fastest_first.end();) {
    const double least = kSame * (*first)->bytes_per_s;
    const auto last =
        std::find_if(first, fastest_first.end(), [&](const Rate* rate) { return rate->bytes_per_s < least; });
    const Rate median = **(first + (last - first) / 2);
    for (; first != last; ++first) **first = median;
  }
}

}  // namespace weightcast
