#include "trainer/replay/lease_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weightcast {
namespace {

// Answers grow longer, and groups wait for versions.
constexpr double kOverdueFactor = 5;
// The mean of few groups says little.
constexpr std::uint64_t kTimedFew = 8;
constexpr double kOverdueFactorOfFew = 10;
constexpr double kBarrenFactor = 20;
// A worker that gave back so many leases in a row, or let them lapse, would take each place that others could have.
constexpr std::uint64_t kFailedInRowMax = 8;
constexpr Duration kBarrenMin = std::chrono::minutes(1);
constexpr Duration kBarrenMaxUntimed = std::chrono::minutes(5);
constexpr double kTimedWeight = 1.0 / 16;
// A worker has so much more than its share, since others may be busy, or gone and not yet missed.
constexpr double kShareFactor = 2;
// A batch ago counts so much of now.
constexpr double kDeliveredDecay = 0.8;
// A worker that has no lease and has not asked for so long needs no share.
constexpr Duration kAskedRecently = std::chrono::seconds(20);
constexpr Duration kWeighInterval = std::chrono::milliseconds(100);
// Of these, lapsed ones beyond that are forgotten.
constexpr std::size_t kLeasesMax = 20'000;
constexpr std::uint64_t kVersionsKept = 4;
// Whose last numbers are known: as many as the learner hears.
constexpr std::size_t kGrantedMax = 10'000;
constexpr Duration kScanInterval = std::chrono::milliseconds(50);

}  // namespace

LeaseTable::Leases::const_iterator LeaseTable::look_up(const std::string& worker, std::uint64_t sequence) const {
  auto lease = leases_.upper_bound({worker, sequence});
  if (lease == leases_.begin()) return leases_.end();
  --lease;
  const bool is_of_it = lease->first.first == worker && sequence - lease->second.first < lease->second.size;
  return is_of_it ? lease : leases_.end();
}

LeaseTable::Leases::iterator LeaseTable::look_up(const std::string& worker, std::uint64_t sequence) {
  const auto found = std::as_const(*this).look_up(worker, sequence);
  return leases_.erase(found, found);  // nothing: the way from a constant iterator to another one
}

Duration LeaseTable::overdue_after() const {
  if (!group_s_) return Duration::max();
  return std::max(overdue_min_,
                  from_seconds((groups_timed_ < kTimedFew ? kOverdueFactorOfFew : kOverdueFactor) * *group_s_));
}

Duration LeaseTable::barren_max() const {
  return group_s_ ? std::max(kBarrenMin, from_seconds(kBarrenFactor * *group_s_)) : kBarrenMaxUntimed;
}

Duration LeaseTable::probe_interval() const { return std::min(overdue_after(), barren_max()); }

bool LeaseTable::is_barren(Instant now, const Worker& worker) const {
  return worker.barren_since && now - *worker.barren_since > overdue_after();
}

bool LeaseTable::is_held_back(Instant now, const Worker& worker) const {
  return worker.barren_since && (worker.failed_in_row >= kFailedInRowMax || now - *worker.barren_since > barren_max());
}

double LeaseTable::weights(Instant now) {
  if (weighed_ && now - *weighed_ < kWeighInterval && now >= *weighed_) return weights_;
  weighed_ = now;
  weights_ = 0;
  for (const auto& [name, worker] : workers_) {
    const bool counts = worker.leased > 0 || now - worker.asked < kAskedRecently;
    if (counts && !is_held_back(now, worker)) weights_ += 1 + worker.delivered_lately;
  }
  return weights_;
}

std::uint64_t LeaseTable::share_left(Instant now, const std::string& name, std::uint64_t groups) {
  const auto [found, is_new] = workers_.try_emplace(name);
  Worker& worker = found->second;
  const bool was_away = is_new || now - worker.asked >= kAskedRecently;
  worker.asked = now;
  if (was_away) weighed_.reset();
  now_ = std::max(now_, now);
  if (is_held_back(now, worker)) return !worker.probed_at || now - *worker.probed_at > probe_interval() ? 1 : 0;
  const double part = (1 + worker.delivered_lately) / std::max(weights(now), 1 + worker.delivered_lately);
  const auto share = std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(std::ceil(kShareFactor * part * static_cast<double>(groups))));
  // One whose leases are overdue may still do others in time, if it brings any.
  const std::uint64_t counted = is_barren(now, worker) ? worker.leased : worker.leased - worker.overdue;
  return share > counted ? share - counted : 0;
}

std::uint64_t LeaseTable::excess(Instant now, std::uint64_t groups) {
  if (group_s_) return 0;
  const double all = weights(now);
  std::uint64_t more = 0;
  for (const auto& [name, worker] : workers_) {
    if (!worker.barren_since || now - *worker.barren_since < overdue_min_) continue;
    const double part = (1 + worker.delivered_lately) / std::max(all, 1 + worker.delivered_lately);
    const auto share = static_cast<std::uint64_t>(std::ceil(part * static_cast<double>(groups)));
    const std::uint64_t expected = worker.leased - worker.overdue;
    more += expected - std::min(expected, share);
  }
  return more;
}

void LeaseTable::add(const std::string& worker, Lease lease) {
  const std::uint64_t last = lease.first + lease.size - 1;
  const auto next = leases_.lower_bound({worker, lease.first});
  const bool overlaps = look_up(worker, lease.first) != leases_.end() ||
                        (next != leases_.end() && next->first.first == worker && next->first.second <= last);
  if (overlaps) return;
  granted_[worker] = lease.first + lease.size;
  if (granted_.size() > kGrantedMax)
    granted_.erase(granted_.begin()->first == worker ? std::next(granted_.begin()) : granted_.begin());
  lease.settled.resize(lease.size);
  Worker& its = workers_[worker];
  now_ = std::max(now_, lease.granted);
  if (!its.barren_since) its.barren_since = lease.granted;
  if (is_held_back(lease.granted, its)) {
    its.probed_at = lease.granted;
    lease.state = Lease::State::kOverdue;
  }
  scan_at_ = std::min(scan_at_, lease.granted + time_max_);
  const Key key{worker, lease.first};
  count(key, leases_.emplace(key, std::move(lease)).first->second, 1);
}

void LeaseTable::count(const Key& key, const Lease& lease, int change) {
  if (lease.state == Lease::State::kLapsed) return;
  const auto add = [&](std::uint64_t& counter) { counter += static_cast<std::uint64_t>(change); };
  Worker& worker = workers_[key.first];
  add(worker.leased);
  add(lease.state == Lease::State::kOverdue ? worker.overdue : expected_);
}

void LeaseTable::set_state(Leases::value_type& entry, Lease::State state) {
  count(entry.first, entry.second, -1);
  entry.second.state = state;
  count(entry.first, entry.second, 1);
}

LeaseTable::Leases::iterator LeaseTable::erase(Leases::iterator lease) {
  count(lease->first, lease->second, -1);
  return leases_.erase(lease);
}

void LeaseTable::fail(const std::string& name) {
  Worker& worker = workers_[name];
  ++worker.failed;
  // A worker that restarts gives back all that it has: one failure.
  if (worker.failed_at == now_) return;
  worker.failed_at = now_;
  ++worker.failed_in_row;
}

std::uint64_t LeaseTable::unsettled(const Lease& lease) {
  return static_cast<std::uint64_t>(std::count(lease.settled.begin(), lease.settled.end(), false));
}

const Lease* LeaseTable::find(const std::string& worker, std::uint64_t sequence) const {
  const auto lease = look_up(worker, sequence);
  return lease == leases_.end() ? nullptr : &lease->second;
}

void LeaseTable::handle_arrived(const std::string& worker, std::uint64_t sequence, const std::string& tag) {
  const auto lease = look_up(worker, sequence);
  if (lease == leases_.end()) return;
  lease->second.tag = tag;
  lease->second.settled[sequence - lease->second.first] = true;
}

std::optional<std::string> LeaseTable::handle_abandoned(const std::string& worker, std::uint64_t sequence) {
  const auto found = look_up(worker, sequence);
  if (found == leases_.end()) return std::nullopt;
  Lease& lease = found->second;
  if (lease.settled[sequence - lease.first]) return std::nullopt;
  lease.settled[sequence - lease.first] = true;
  ++lease.abandoned;
  if (lease.size - lease.abandoned >= needed_) return std::nullopt;
  std::optional<std::string> tag;
  if (!lease.tag.empty()) tag = lease.tag;
  if (lease.state == Lease::State::kExpected) fail(worker);
  erase(found);
  return tag;
}

std::vector<std::uint64_t> LeaseTable::handle_not_granted(const std::string& worker, std::uint64_t first_sequence) {
  std::vector<std::uint64_t> groups;
  for (auto lease = leases_.lower_bound({worker, first_sequence});
       lease != leases_.end() && lease->first.first == worker;) {
    if (!lease->second.tag.empty()) {
      ++lease;
      continue;
    }
    if (lease->second.state == Lease::State::kExpected) fail(worker);
    groups.push_back(lease->second.group);
    lease = erase(lease);
  }
  return groups;
}

void LeaseTable::handle_group_whole(Instant now, const std::string& name, std::uint64_t sequence) {
  const auto lease = look_up(name, sequence);
  if (lease == leases_.end()) return;
  // Nobody knows how long a lapsed one was worked on.
  if (lease->second.state != Lease::State::kLapsed) {
    const double seconds = to_seconds(now - lease->second.granted);
    ++groups_timed_;
    const double weight = std::max(kTimedWeight, 1.0 / static_cast<double>(groups_timed_));
    group_s_ = group_s_.value_or(seconds) + weight * (seconds - group_s_.value_or(seconds));
  }
  Worker& worker = workers_[name];
  ++worker.delivered;
  worker.delivered_lately += 1;
  worker.barren_since.reset();
  worker.failed_in_row = 0;
  worker.probed_at.reset();
  erase(lease);
}

void LeaseTable::append_unsettled(const Leases::value_type& entry,
                                  std::vector<std::pair<std::string, std::uint64_t>>& to) {
  const Lease& lease = entry.second;
  if (lease.state == Lease::State::kLapsed) return;
  for (std::uint64_t i = 0; i < lease.size; ++i) {
    if (!lease.settled[i]) to.emplace_back(entry.first.first, lease.first + i);
  }
}

std::vector<std::pair<std::string, std::uint64_t>> LeaseTable::handle_group_closed(const std::string& worker,
                                                                                   std::uint64_t sequence) {
  std::vector<std::pair<std::string, std::uint64_t>> in_vain;
  const auto lease = look_up(worker, sequence);
  if (lease == leases_.end()) return in_vain;
  append_unsettled(*lease, in_vain);
  erase(lease);
  return in_vain;
}

std::vector<Lease> LeaseTable::handle_worker_lost(const std::string& name) {
  std::vector<Lease> lost;
  for (auto lease = leases_.lower_bound({name, 0}); lease != leases_.end() && lease->first.first == name;) {
    if (lease->second.state == Lease::State::kExpected) fail(name);
    lost.push_back(lease->second);
    lease = erase(lease);
  }
  // One that has brought nothing keeps its record: it cannot begin anew by another incarnation.
  if (const auto worker = workers_.find(name); worker != workers_.end() && !worker->second.barren_since) {
    workers_.erase(worker);
  }
  weighed_.reset();
  return lost;
}

std::vector<std::pair<std::string, std::uint64_t>> LeaseTable::handle_floor(Version least) {
  std::vector<std::pair<std::string, std::uint64_t>> in_vain;
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    if (lease->second.version >= least) {
      ++lease;
      continue;
    }
    append_unsettled(*lease, in_vain);
    set_state(*lease, Lease::State::kLapsed);
    // What began later than its lease may still be fresh enough.
    lease = lease->second.version.value + kVersionsKept < least.value ? erase(lease) : std::next(lease);
  }
  return in_vain;
}

void LeaseTable::handle_batch() {
  for (auto& [name, worker] : workers_) worker.delivered_lately *= kDeliveredDecay;
}

std::uint64_t LeaseTable::handle_time(Instant now) {
  std::uint64_t lapsed = 0;
  if (now < scan_at_) return lapsed;
  now_ = std::max(now_, now);
  const Duration overdue = overdue_after();
  std::size_t forgettable = leases_.size() - std::min(leases_.size(), kLeasesMax);
  for (auto at = leases_.begin(); at != leases_.end();) {
    auto& entry = *at;
    Lease& lease = entry.second;
    if (lease.state == Lease::State::kLapsed) {
      at = forgettable == 0 ? std::next(at) : erase(at);
      forgettable -= forgettable == 0 ? 0 : 1;
      continue;
    }
    ++at;
    if (now - lease.granted >= time_max_) {
      lapsed += unsettled(lease);
      if (lease.state == Lease::State::kExpected) fail(entry.first.first);
      set_state(entry, Lease::State::kLapsed);
    } else if (lease.state == Lease::State::kExpected &&
               (now - lease.granted > overdue || is_held_back(now, workers_[entry.first.first]))) {
      fail(entry.first.first);
      set_state(entry, Lease::State::kOverdue);
    }
  }
  scan_at_ = std::min(now + kScanInterval, lapses_at().value_or(Instant::max()));
  return lapsed;
}

std::optional<Instant> LeaseTable::lapses_at() const {
  std::optional<Instant> deadline;
  for (const auto& [key, lease] : leases_) {
    if (lease.state == Lease::State::kLapsed) continue;
    const Instant at = lease.granted + time_max_;
    deadline = deadline ? std::min(*deadline, at) : at;
  }
  return deadline;
}

void LeaseTable::handle_renumbered(std::uint64_t shift) {
  for (auto& [key, lease] : leases_) {
    if (lease.version != kNoVersion) lease.version.value += shift;
  }
}

bool LeaseTable::has_ended(const std::string& worker, std::uint64_t sequence) const {
  const auto granted = granted_.find(worker);
  return granted == granted_.end() ? is_resumed_ : sequence < granted->second;
}

std::uint64_t LeaseTable::rollouts_under_way() const {
  std::uint64_t rollouts = 0;
  for (const auto& [key, lease] : leases_) rollouts += lease.state == Lease::State::kLapsed ? 0 : unsettled(lease);
  return rollouts;
}

LeaseRecord LeaseTable::record_of(const std::string& name) const {
  const auto found = workers_.find(name);
  if (found == workers_.end()) return {};
  const Worker& worker = found->second;
  return {worker.leased, worker.overdue, worker.delivered, worker.failed, is_held_back(now_, worker)};
}

}  // namespace weightcast
