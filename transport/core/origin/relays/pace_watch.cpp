#include "transport/core/origin/relays/pace_watch.h"

#include <algorithm>
#include <unordered_map>

namespace weightcast {

void PaceWatch::handle_progress(Instant now, PeerId member, std::vector<std::uint32_t> missing) {
  std::deque<Sample>& samples = watched_[member].samples;
  // More often than this says nothing more: heartbeats may come at any pace.
  if (!samples.empty() && now - samples.back().at < kWindow / 16) return;
  samples.push_back({now, std::move(missing)});
  while (samples.size() > 2 && now - samples[1].at >= kKept) samples.pop_front();
}

std::optional<PaceWatch::Pace> PaceWatch::pace_of(Instant now, const Watched& watched, std::uint32_t stripe) {
  const std::deque<Sample>& samples = watched.samples;
  if (samples.empty() || samples.back().at - samples.front().at < kWindow || now - samples.back().at > kGapMax) {
    return std::nullopt;
  }
  std::size_t first = samples.size() - 1;
  while (samples.back().at - samples[first].at < kWindow) --first;
  for (std::size_t i = first; i < samples.size(); ++i) {
    if (stripe >= samples[i].missing.size()) return std::nullopt;  // told under another plan, or by an older release
    if (i > first && samples[i].at - samples[i - 1].at > kGapMax) return std::nullopt;
  }
  Pace pace;
  pace.from = samples[first].at;
  const std::uint32_t before = samples[first].missing[stripe];
  pace.missing = samples.back().missing[stripe];
  if (pace.missing > before) return std::nullopt;  // it began anew, or the payload has grown
  pace.chunks_per_s = (before - pace.missing) / to_seconds(samples.back().at - samples[first].at);
  return pace;
}

std::optional<std::uint32_t> PaceWatch::missing_at(const Watched& watched, Instant at, std::uint32_t stripe) {
  std::optional<std::uint32_t> missing;
  for (const Sample& sample : watched.samples) {
    if (sample.at > at) break;
    if (stripe < sample.missing.size()) missing = sample.missing[stripe];
  }
  return missing;
}

double PaceWatch::latest_pace(const Watched& watched, std::uint32_t stripe) {
  if (watched.samples.size() < 2) return 0;
  const Sample& before = *(watched.samples.end() - 2);
  const Sample& after = watched.samples.back();
  if (stripe >= before.missing.size() || stripe >= after.missing.size()) return 0;
  if (after.missing[stripe] >= before.missing[stripe] || after.at - before.at < kPeakOver) return 0;
  return (before.missing[stripe] - after.missing[stripe]) / to_seconds(after.at - before.at);
}

double PaceWatch::median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<PaceWatch::Lag> PaceWatch::lagging(Instant now, const Plan& plan, const std::vector<Known>& members) {
  std::unordered_map<PeerId, std::size_t> places;
  for (std::size_t at = 0; at < plan.members.size(); ++at) places.emplace(plan.members[at], at);
  double weights = 0;
  for (const StripePlan& stripe : plan.stripes) weights += stripe.weight;
  std::vector<Lag> found;
  for (std::uint32_t stripe = 0; stripe < plan.stripes.size(); ++stripe) {
    const std::vector<PeerId>& parents = plan.stripes[stripe].parents;
    const double share = plan.stripes[stripe].weight / weights;
    std::vector<std::optional<Pace>> paces(plan.members.size());
    std::vector<double> bests, received, from_origin;
    for (std::size_t at = 0; at < plan.members.size(); ++at) {
      Watched& watched = watched_[plan.members[at]];
      watched.best.resize(std::max<std::size_t>(watched.best.size(), plan.stripes.size()));
      watched.peak.resize(watched.best.size());
      watched.fed_by.resize(std::max<std::size_t>(watched.fed_by.size(), plan.stripes.size()));
      if (watched.fed_by[stripe].first != parents[at] || watched.fed_by[stripe].second == Instant{}) {
        watched.fed_by[stripe] = {parents[at], now};
      }
      paces[at] = pace_of(now, watched, stripe);
      if (paces[at]) watched.best[stripe] = std::max(watched.best[stripe], paces[at]->chunks_per_s);
      watched.peak[stripe] = std::max(watched.peak[stripe], latest_pace(watched, stripe));
      if (watched.best[stripe] > 0) bests.push_back(watched.best[stripe]);
    }
    for (std::size_t at = 0; at < plan.members.size(); ++at) {
      const Watched& watched = watched_[plan.members[at]];
      const double pace = std::max(watched.best[stripe], watched.received_chunks_per_s * share);
      if (pace > 0) received.push_back(pace);
      if (pace > 0 && parents[at] == kOriginId) from_origin.push_back(pace);
    }
    const double usual = median(std::move(bests));
    // Half of the members may be behind one relay, whose pace then is the usual one. Those of the origin never are.
    const double usually_received = std::max(median(std::move(received)), median(std::move(from_origin)));
    std::unordered_map<PeerId, std::uint32_t> hungry;  // children that lack some, and share what the parent sends
    for (std::size_t at = 0; at < plan.members.size(); ++at) hungry[parents[at]] += members[at].has_all ? 0 : 1;
    std::vector<bool> lags(plan.members.size()), far_behind(plan.members.size());
    for (std::size_t at = 0; at < plan.members.size(); ++at) {
      const Watched& child = watched_[plan.members[at]];
      if (!paces[at] || paces[at]->missing == 0 || members[at].has_all) continue;
      if (child.fed_by[stripe].second > paces[at]->from) continue;
      double once = std::max(usually_received, members[at].before_chunks_per_s * share);
      std::uint32_t parent_lacked = 0;
      if (parents[at] != kOriginId) {
        const auto place = places.find(parents[at]);
        if (place == places.end()) continue;
        const Watched& parent = watched_[parents[at]];
        if (!members[place->second].has_all) {
          const auto lacked = missing_at(parent, paces[at]->from, stripe);
          if (!lacked) continue;
          parent_lacked = *lacked;
        }
        once = std::max({once, parent.peak[stripe], parent.received_chunks_per_s * share});
      }
      const double predicted = members[at].predicted_chunks_per_s * share;
      double expected = std::max(std::max(child.best[stripe], usual) / kLagFactor,
                                 std::max(once / hungry[parents[at]], predicted) / kHoardFactor);
      if (predicted > 0) expected = std::min(expected, predicted / kPlannedFactor);
      if (paces[at]->missing < parent_lacked + kSlackChunks) continue;
      const bool telling = expected * to_seconds(kWindow) >= kChunksJudged;
      lags[at] = telling && paces[at]->chunks_per_s < expected;
      far_behind[at] = paces[at]->chunks_per_s < std::max(child.best[stripe], usually_received) / kHoardFactor;
    }
    for (std::size_t at = 0; at < plan.members.size(); ++at) {
      if (!lags[at]) continue;
      const auto parent = places.find(parents[at]);
      if (parent != places.end() && lags[parent->second]) continue;
      found.push_back({parents[at], plan.members[at], stripe, far_behind[at]});
    }
  }
  return found;
}

}  // namespace weightcast
