#include "transport/core/origin/forecast_watch.h"

#include <algorithm>

#include "transport/core/origin/link_estimate.h"

namespace weightcast {

std::optional<ForecastWatch::Miss> ForecastWatch::handle_received(const Plan& plan, PayloadId payload, PeerId member,
                                                                  std::uint64_t bytes, double seconds) {
  const auto at = static_cast<std::size_t>(std::ranges::find(plan.members, member) - plan.members.begin());
  if (at >= plan.rates.size() || !plan.rates[at].limited()) return std::nullopt;
  const auto took = took_.find(payload);
  const double made_s = took == took_.end() ? 0 : to_seconds(took->second);
  const double planned_s = std::max(double(bytes) / plan.rates[at].bytes_per_s, made_s);
  if (seconds <= kMissFactor * planned_s || seconds <= planned_s + to_seconds(kSlack)) return std::nullopt;
  std::set<PeerId>& missed = missed_[payload];
  const bool first = missed.empty();
  missed.insert(member);
  Miss miss{parents_of(plan, member), plan.rates[at], Rate{double(bytes) / seconds}, first};
  const bool above = std::ranges::any_of(miss.parents, [&](PeerId parent) { return missed.contains(parent); });
  return above ? std::nullopt : std::optional(std::move(miss));
}

}  // namespace weightcast
