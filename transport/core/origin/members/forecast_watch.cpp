#include "transport/core/origin/members/forecast_watch.h"

#include <algorithm>
#include <utility>

#include "transport/core/origin/members/link_estimate.h"

namespace weightcast {
namespace {

// Another plan, or another link: what was known of the edge is not of this one.
constexpr double kSamePlan = 1.25;

bool are_alike(Rate a, Rate b, double factor) {
  return a.bytes_per_s <= factor * b.bytes_per_s && b.bytes_per_s <= factor * a.bytes_per_s;
}

}  // namespace

ForecastWatch::Watched& ForecastWatch::watched(PayloadId payload) {
  Watched& found = payloads_[payload];
  if (payloads_.size() > kPayloadsMax && payloads_.begin()->first != payload) payloads_.erase(payloads_.begin());
  return found;
}

std::vector<ForecastWatch::Miss> ForecastWatch::handle_received(Instant now, const Plan& plan, PayloadId payload,
                                                                PeerId member, std::uint64_t bytes, double seconds) {
  Watched& watched = this->watched(payload);
  watched.received.insert(member);
  const auto at = static_cast<std::size_t>(std::ranges::find(plan.members, member) - plan.members.begin());
  if (at < plan.rates.size() && plan.rates[at].limited()) {
    const double planned_s = std::max(double(bytes) / plan.rates[at].bytes_per_s, to_seconds(watched.made));
    if (seconds > kMissFactor * planned_s && seconds > planned_s + to_seconds(kSlack)) {
      watched.missed[member] = {member, parents_of(plan, member), plan.rates[at], Rate{double(bytes) / seconds}};
      watched.undecided.insert(member);
    }
  }
  return decide(now, watched, false);
}

std::vector<ForecastWatch::Miss> ForecastWatch::handle_has(Instant now, PayloadId payload, PeerId member) {
  const auto found = payloads_.find(payload);
  if (found == payloads_.end()) return {};
  found->second.received.insert(member);
  return decide(now, found->second, false);
}

std::vector<ForecastWatch::Miss> ForecastWatch::end(Instant now, PayloadId payload) {
  auto ended = payloads_.extract(payload);
  return ended ? decide(now, ended.mapped(), true) : std::vector<Miss>();
}

std::vector<ForecastWatch::Miss> ForecastWatch::decide(Instant now, Watched& watched, bool all) {
  std::vector<Miss> decided;
  for (auto at = watched.undecided.begin(); at != watched.undecided.end();) {
    Miss miss = watched.missed.at(*at);
    const auto has_received = [&](PeerId parent) { return parent == kOriginId || watched.received.contains(parent); };
    if (!all && !std::ranges::all_of(miss.parents, has_received)) {
      ++at;
      continue;
    }
    at = watched.undecided.erase(at);
    if (std::ranges::any_of(miss.parents, [&](PeerId parent) { return watched.missed.contains(parent); })) continue;
    if (is_known(now, miss)) continue;
    std::erase_if(known_, [&](const auto& entry) { return now - entry.second.at > kKnownFor; });
    known_[miss.member] = {miss.planned, miss.reached, now};
    miss.first = !std::exchange(watched.said, true);
    decided.push_back(std::move(miss));
  }
  return decided;
}

bool ForecastWatch::is_known(Instant now, const Miss& miss) const {
  const auto found = known_.find(miss.member);
  if (found == known_.end() || now - found->second.at > kKnownFor) return false;
  return are_alike(found->second.planned, miss.planned, kSamePlan) &&
         are_alike(found->second.reached, miss.reached, kMissFactor);
}

}  // namespace weightcast
