#include "trainer/replay/rollout_demand.h"

#include <algorithm>
#include <cmath>

namespace weightcast {
namespace {

constexpr std::size_t kStepsKept = 5;
// Of the groups' times: four batches, and enough for a tail.
constexpr std::size_t kWholesMin = 8;
constexpr std::size_t kWholesMax = 1024;
constexpr std::size_t kBatchesKept = 4;
constexpr std::size_t kLeadsTried = 64;
// Batches that a plan looks at, before and after the next one.
constexpr std::size_t kBatchesTried = 64;
// So many deviations of the number of groups that are not whole in time.
constexpr double kDeviations = 1;
// Of the reserve, in a step.
constexpr double kReserveDecay = 1.0 / 8;
// A wait of one step counts so much in the share of the last ones, and no more than so many times what is allowed.
constexpr double kWaitWeight = 1.0 / 16;
constexpr double kWaitsMax = 20;
// A lead begins so many T_bcast after a publication: workers differ.
constexpr double kBroadcasts = 1.1;
constexpr std::size_t kReleasesMax = 1000;

template <typename Value>
void keep(std::deque<Value>& values, const Value& value, std::size_t count) {
  values.push_back(value);
  while (values.size() > count) values.pop_front();
}

}  // namespace

void RolloutDemand::handle_released(Instant now, std::uint64_t end) {
  if (!released_.empty() && end <= released_.back().first) return;
  released_.emplace_back(end, now);
  if (released_.size() > kReleasesMax) released_.pop_front();
}

Duration RolloutDemand::handle_leased(Instant now, std::uint64_t place) {
  while (!released_.empty() && released_.front().first + 2 * groups_ < place) released_.pop_front();
  const auto release = std::find_if(released_.begin(), released_.end(), [&](const auto& r) { return place < r.first; });
  if (release == released_.end() || now <= release->second) return Duration::zero();
  // A fleet that makes a batch in T never lets one wait for longer. A smaller one does: what it takes longer is no
  // reason to release earlier.
  const Duration waited = now - release->second;
  const std::optional<double> step = step_s();
  return step ? std::min(waited, from_seconds(*step)) : Duration::zero();
}

void RolloutDemand::handle_whole(Duration waited, Duration made) {
  const std::size_t count = std::clamp<std::size_t>(kBatchesKept * groups_, 4 * kWholesMin, kWholesMax);
  keep(wholes_, {to_seconds(waited), to_seconds(waited + made)}, count);
}

void RolloutDemand::handle_wanted(Instant now, std::uint64_t whole) {
  if (wanted_) return;
  wanted_ = now;
  missing_ = groups_ - std::min(groups_, whole);
  if (taken_) keep(steps_s_, to_seconds(now - *taken_), kStepsKept);
}

void RolloutDemand::handle_taken(Instant now) {
  const double waited = wanted_ ? to_seconds(now - *wanted_) : 0;
  const double step = step_s().value_or(0);
  const double share = waited + step > 0 ? waited / (waited + step) : 0;
  wait_share_ += kWaitWeight * (std::min(share, kWaitsMax * kWaitShare) - wait_share_);
  if (wait_share_ <= kWaitShare) {
    margin_ -= kReserveDecay * (reserve_ + margin_);
  } else if (share > kWaitShare && has_refused_ && lead_s_ > 0) {
    margin_ = std::min(margin_ + static_cast<double>(missing_), 2 * static_cast<double>(groups_));
  }
  has_refused_ = false;
  wanted_.reset();
  taken_ = now;
  plan();
}

void RolloutDemand::plan() {
  const double step = step_s().value_or(0);
  if (wholes_.size() < kWholesMin || step <= 0) return;
  std::vector<double> sorted;
  for (const Whole& whole : wholes_) sorted.push_back(whole.s);
  std::sort(sorted.begin(), sorted.end());
  // One that took far longer than others tells nothing of the next ones.
  const double longest = std::min(sorted.back(), 2 * sorted[sorted.size() * 9 / 10]);
  std::optional<double> least;
  const auto consider = [&](double lead) {
    const double reserve = reserve_for(lead, step, sorted);
    double lag = reserve / static_cast<double>(groups_);
    for (const Whole& whole : wholes_) {
      // One that is begun in the very moment of a version's arrival may have it.
      const double steps = std::ceil((lead - whole.waited_s + t_bcast_s_) / step - 1e-6);
      lag += std::max(1.0, steps) / static_cast<double>(wholes_.size());
    }
    // Of two that are as good, the one that leaves less to the reserve.
    if (least && (lag > *least + 1e-9 || (lag > *least - 1e-9 && lead < lead_s_))) return;
    least = lag;
    lead_s_ = lead;
    reserve_ = reserve;
  };
  // Just after a version has arrived, and at the quantiles of C.
  double lead = step - kBroadcasts * t_bcast_s_;
  for (std::size_t i = 0; i < kLeadsTried && lead < longest + step; ++i, lead += step) {
    if (lead > 0) consider(lead);
  }
  const std::size_t tried = std::min(kLeadsTried, sorted.size());
  for (std::size_t i = 0; i < tried; ++i) consider(sorted[(i + 1) * sorted.size() / tried - 1]);
  margin_ = std::max(margin_, -reserve_);
}

double RolloutDemand::reserve_for(double lead, double step, const std::vector<double>& sorted) const {
  const auto share_within = [&](double seconds) {
    const auto end = std::upper_bound(sorted.begin(), sorted.end(), seconds);
    return static_cast<double>(end - sorted.begin()) / static_cast<double>(sorted.size());
  };
  // Of each batch that is released, those after the next one included: what is late, less what is early.
  double missing = 0, variance = 0;
  const auto add = [&](double share, double counted) {
    missing += counted - share;
    variance += share * (1 - share);
  };
  double at = lead;
  for (std::size_t i = 0; i < kBatchesTried && at < sorted.back(); ++i, at += step) add(share_within(at), 1);
  at = lead - step;
  for (std::size_t i = 0; i < kBatchesTried && at > 0 && share_within(at) > 0; ++i, at -= step)
    add(share_within(at), 0);
  const auto groups = static_cast<double>(groups_);
  return std::max(0.0, groups * missing + kDeviations * std::sqrt(groups * variance));
}

std::optional<double> RolloutDemand::step_s() const {
  if (steps_s_.empty()) return std::nullopt;
  std::deque<double> sorted = steps_s_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::uint64_t RolloutDemand::reserve() const {
  return static_cast<std::uint64_t>(std::lround(std::max(0.0, reserve_ + margin_)));
}

std::uint64_t RolloutDemand::groups_wanted(Instant now) const {
  const std::optional<double> step = step_s();
  // Of the first step nobody knows how long it takes: the next batch may be wanted at any time.
  if (!step || !taken_) return groups_;
  const double left = wanted_ ? 0 : std::max(0.0, *step - to_seconds(now - *taken_));
  const double ahead = lead_s_ - left;
  std::uint64_t batches = 0;
  // A step that takes no time would want any number.
  if (ahead >= 0) batches = 1 + static_cast<std::uint64_t>(std::min(1e6, ahead / std::max(*step, 1e-9)));
  return batches * groups_ + reserve();
}

}  // namespace weightcast
