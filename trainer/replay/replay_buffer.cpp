#include "trainer/replay/replay_buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/random.h"
#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::string_view kStale = "stale";
constexpr std::string_view kGroupClosed = "group_closed";
constexpr std::string_view kNotLeased = "not_leased";
constexpr std::string_view kLeaseEnded = "lease_ended";
constexpr std::string_view kOtherGroup = "other_group";
// Until a lease may be overdue. Another group takes its place, at the cost of a group too many if the worker had but
// paused. A synchronous batch keeps its groups as long as a worker may be silent before it is taken for lost.
constexpr Duration kOverdueMin = std::chrono::seconds(2);
constexpr Duration kOverdueMinSynchronous = std::chrono::seconds(20);

/// The number in which a group's tag ends (group_tag()); absent if it ends in no digit, or in too many.
std::optional<std::uint64_t> number_in(std::string_view tag) {
  return parse_number<std::uint64_t>(tag.substr(tag.find_last_not_of("0123456789") + 1));
}

bool has_signal(const RolloutGroup& group) {
  return std::any_of(group.rollouts.begin(), group.rollouts.end(),
                     [&](const Trajectory& t) { return t.reward != group.rollouts.front().reward; });
}

}  // namespace

Version ReplayBuffer::floor() const { return floor_at(learner_); }

Version ReplayBuffer::floor_at(Version learner) const {
  std::uint64_t lag = options_.max_staleness.value_or(learner.value);
  if (options_.async_generation_ratio) {
    lag = std::min(lag, static_cast<std::uint64_t>(std::ceil(*options_.async_generation_ratio)));
  }
  return Version{learner.value - std::min(lag, learner.value)};
}

std::optional<Version> ReplayBuffer::number_of(Version named) const {
  const auto found = renumbered_.find(named);
  if (found != renumbered_.end()) return found->second;
  if (named < first_own_ && named >= floor()) return std::nullopt;
  return named;
}

VersionStanding ReplayBuffer::standing_of(Version named) const {
  if (named > learner_) return VersionStanding::kUnknown;
  const std::optional<Version> version = number_of(named);
  if (!version) return VersionStanding::kNeverPublished;
  // Of versions that are stale anyway nobody remembers whether they were published.
  if (*version < floor() && *version != kNoVersion) return VersionStanding::kPublished;
  const bool published = std::binary_search(published_.begin(), published_.end(), *version);
  return published ? VersionStanding::kPublished : VersionStanding::kNeverPublished;
}

Duration ReplayBuffer::overdue_min(const ReplayOptions& options) {
  const bool is_synchronous = options.max_staleness == 0 || options.async_generation_ratio == 0.0;
  return is_synchronous ? kOverdueMinSynchronous : kOverdueMin;
}

Arrival ReplayBuffer::refuse(std::string_view reason, std::string detail) {
  const auto found = stats_.refused.find(reason);
  if (found != stats_.refused.end()) {
    ++found->second;
  } else {
    stats_.refused.emplace(reason, 1);
  }
  return {AdmissionOutcome::kRefused, reason, std::move(detail)};
}

Arrival ReplayBuffer::handle_trajectory(Instant now, Trajectory trajectory) {
  handle_time(now);
  const RolloutId id{trajectory.worker, trajectory.sequence};
  const auto refusal = check_trajectory(trajectory, rules_, [this](Version version) { return standing_of(version); });
  if (refusal) {
    give_back(trajectory);
    return refuse(to_string(refusal->fault), refusal->detail);
  }
  // All have numbers, or the check would have refused it.
  trajectory.oldest_version = number_of(trajectory.oldest_version).value_or(kNoVersion);
  for (VersionRun& run : trajectory.version_runs) run.version = number_of(run.version).value_or(kNoVersion);
  if (has_arrived(trajectory)) {
    ++stats_.duplicates;
    return {AdmissionOutcome::kDuplicate, {}, {}};
  }
  if (trajectory.oldest_version < floor()) {
    give_back(trajectory);
    return refuse(kStale, fmt::format("version {} is too old; the learner is at {} and takes {} and later",
                                      trajectory.oldest_version.value, learner_.value, floor().value));
  }
  if (closed_.count(trajectory.group) != 0) {
    handle_abandoned(id);
    return refuse(kGroupClosed,
                  fmt::format("its group has all of its {} rollouts, or was given up", options_.group_size));
  }
  if (const auto refusal_here = refusal_of_lease(trajectory)) return *refusal_here;
  const std::uint64_t bytes = trajectory.size_bytes();
  if (!make_room(bytes, trajectory.group)) {
    ++stats_.full;
    return {AdmissionOutcome::kFull,
            {},
            fmt::format("the buffer holds {} rollouts in {} bytes; send it again later", buffered_, buffered_bytes_)};
  }
  admit(now, std::move(trajectory), bytes);
  return {};
}

bool ReplayBuffer::has_arrived(const Trajectory& trajectory) const {
  const auto group = open_.find(trajectory.group);
  return group != open_.end() && std::ranges::any_of(group->second.rollouts, [&](const Trajectory& one) {
           return one.sequence == trajectory.sequence && one.worker == trajectory.worker;
         });
}

void ReplayBuffer::give_back(const Trajectory& trajectory) {
  const Lease* lease = leases_.find(trajectory.worker, trajectory.sequence);
  const bool is_its_tag = lease != nullptr && lease->group == number_in(trajectory.group);
  handle_abandoned({trajectory.worker, trajectory.sequence});
  // The others of its group, which may be fresh enough, come to nothing.
  if (is_its_tag && leases_.find(trajectory.worker, trajectory.sequence) == nullptr) close(trajectory.group);
}

std::optional<Arrival> ReplayBuffer::refusal_of_lease(const Trajectory& trajectory) {
  if (!options_.leased_only) return std::nullopt;
  const Lease* lease = leases_.find(trajectory.worker, trajectory.sequence);
  if (lease == nullptr && leases_.has_ended(trajectory.worker, trajectory.sequence)) {
    return refuse(kLeaseEnded, fmt::format("the lease of number {} is over: its worker was silent for long, or gave "
                                           "up others of its group",
                                           trajectory.sequence));
  }
  if (lease == nullptr) {
    return refuse(kNotLeased, fmt::format("number {} is of no group that was granted to this worker; ask for groups at "
                                          "/v1/starts first",
                                          trajectory.sequence));
  }
  const bool is_its =
      number_in(trajectory.group) == lease->group && (lease->tag.empty() || lease->tag == trajectory.group);
  if (is_its) return std::nullopt;
  const std::uint64_t group = lease->group;
  handle_abandoned({trajectory.worker, trajectory.sequence});
  return refuse(kOtherGroup, fmt::format("number {} was granted for group {}, in whose number its tag has to end",
                                         trajectory.sequence, group));
}

bool ReplayBuffer::make_room(std::uint64_t bytes, const std::string& tag) {
  for (;;) {
    if (buffered_ < options_.rollouts_max && buffered_bytes_ + bytes <= options_.bytes_max) return true;
    const std::vector<std::size_t> chosen = choose();
    if (chosen.size() * options_.group_size == options_.rollout_batch_size) return false;
    auto first = open_.end();
    for (auto group = open_.begin(); group != open_.end(); ++group) {
      if (group->first != tag && (first == open_.end() || group->second.number < first->second.number)) first = group;
    }
    if (first != open_.end()) {
      give_up(first);
      continue;
    }
    // Complete groups that no batch can take: more of them lag than a fractional ratio allows.
    std::size_t spare = 0;
    while (std::find(chosen.begin(), chosen.end(), spare) != chosen.end()) ++spare;
    if (spare >= complete_.size()) return false;
    release(complete_[spare], stats_.expired);
    complete_.erase(complete_.begin() + static_cast<std::ptrdiff_t>(spare));
  }
}

void ReplayBuffer::admit(Instant now, Trajectory trajectory, std::uint64_t bytes) {
  auto [group, begins] = open_.try_emplace(trajectory.group);
  if (begins) {
    group->second.tag = trajectory.group;
    group->second.oldest = trajectory.oldest_version;
    group->second.number = stats_.admitted;
    group->second.first_arrival = now;
  }
  leases_.handle_arrived(trajectory.worker, trajectory.sequence, trajectory.group);
  ++stats_.admitted;
  ++buffered_;
  buffered_bytes_ += bytes;
  group->second.bytes += bytes;
  group->second.oldest = std::min(group->second.oldest, trajectory.oldest_version);
  group->second.rollouts.push_back(std::move(trajectory));
  if (group->second.rollouts.size() < options_.group_size) return;
  RolloutGroup done = std::move(group->second);
  open_.erase(group);
  complete(now, std::move(done));
}

void ReplayBuffer::complete(Instant now, RolloutGroup group) {
  close(group.tag);
  const Trajectory& first = group.rollouts.front();
  if (const Lease* lease = leases_.find(first.worker, first.sequence);
      lease != nullptr && lease->state == Lease::State::kExpected) {
    demand_.handle_whole(lease->waited, now - lease->granted);
  }
  leases_.handle_group_whole(now, first.worker, first.sequence);
  if (options_.filter_equal_rewards && !has_signal(group)) {
    release(group, stats_.filtered);
    return;
  }
  complete_.push_back(std::move(group));
}

void ReplayBuffer::close(const std::string& tag) {
  if (closed_.emplace(tag, learner_).second) closed_order_.push_back(tag);
  if (closed_.size() <= options_.closed_groups_max) return;
  closed_.erase(closed_order_.front());
  closed_order_.pop_front();
}

void ReplayBuffer::release(const RolloutGroup& group, std::uint64_t& counter) {
  buffered_ -= group.rollouts.size();
  buffered_bytes_ -= group.bytes;
  counter += group.rollouts.size();
}

void ReplayBuffer::give_up(std::map<std::string, RolloutGroup>::iterator group) {
  close(group->first);
  const Trajectory& first = group->second.rollouts.front();
  abort_all(leases_.handle_group_closed(first.worker, first.sequence));
  release(group->second, stats_.given_up);
  open_.erase(group);
}

void ReplayBuffer::handle_published(Version version) {
  if (published_.empty() || version > published_.back()) published_.push_back(version);
}

void ReplayBuffer::handle_renumbered(std::uint64_t shift, NamesOfVersions names) {
  if (names == NamesOfVersions::kAsKnown) {
    for (auto& [named, number] : renumbered_) number.value += shift;
    for (const Version version : published_) {
      if (version >= first_own_) renumbered_[version] = Version{version.value + shift};
    }
    first_own_ = Version{learner_.value + shift};
  }
  const auto move = [shift](Version& version) {
    if (version != kNoVersion) version.value += shift;
  };
  const auto move_group = [&](RolloutGroup& group) {
    move(group.oldest);
    for (Trajectory& rollout : group.rollouts) {
      move(rollout.oldest_version);
      for (VersionRun& run : rollout.version_runs) move(run.version);
    }
  };
  move(learner_);
  for (Version& version : published_) move(version);
  for (auto& [tag, group] : open_) move_group(group);
  for (RolloutGroup& group : complete_) move_group(group);
  for (auto& [tag, version] : closed_) move(version);
  leases_.handle_renumbered(shift);
}

void ReplayBuffer::handle_step(Version learner) {
  if (learner > learner_) is_training_ = false;
  learner_ = std::max(learner_, learner);
  const Version least = floor();
  // The newest one stays, so that supply() knows it.
  const auto kept = std::lower_bound(published_.begin(), published_.end(), least);
  if (kept != published_.begin()) published_.erase(published_.begin(), std::min(kept, std::prev(published_.end())));
  for (auto group = open_.begin(); group != open_.end();) {
    const auto next = std::next(group);
    if (group->second.oldest < least) give_up(group);
    group = next;
  }
  std::erase_if(complete_, [&](const RolloutGroup& group) {
    if (group.oldest >= least) return false;
    release(group, stats_.expired);
    return true;
  });
  std::erase_if(renumbered_, [&](const auto& version) { return version.second < least; });
  abort_all(leases_.handle_floor(least));
  // What comes late for such a group is stale: nothing need be remembered.
  while (!closed_order_.empty() && closed_.at(closed_order_.front()) < least) {
    closed_.erase(closed_order_.front());
    closed_order_.pop_front();
  }
}

void ReplayBuffer::handle_time(Instant now) {
  for (auto group = open_.begin(); group != open_.end();) {
    const auto next = std::next(group);
    if (now - group->second.first_arrival >= options_.group_time_max) give_up(group);
    group = next;
  }
  stats_.lost += leases_.handle_time(now);
}

std::uint64_t ReplayBuffer::additional_groups() const {
  const std::uint64_t environments =
      options_.num_env_groups > batch_groups() ? options_.num_env_groups - batch_groups() : 0;
  return std::max(options_.max_additional_running_prompts, environments);
}

std::uint64_t ReplayBuffer::usable_groups() const {
  const double ratio = options_.async_generation_ratio.value_or(0), part = ratio - std::floor(ratio);
  const std::uint64_t wanted_at = learner_.value + (is_training_ ? 1 : 0);
  const auto lag = static_cast<std::uint64_t>(std::ceil(ratio));
  if (part == 0 || wanted_at < lag) return complete_.size();
  const auto lagging = static_cast<std::uint64_t>(std::ranges::count_if(
      complete_, [&](const RolloutGroup& group) { return group.oldest.value <= wanted_at - lag; }));
  const auto most = static_cast<std::uint64_t>(part * static_cast<double>(batch_groups()));
  return complete_.size() - lagging + std::min(lagging, most);
}

std::uint64_t ReplayBuffer::batch_of(std::uint64_t ahead) const {
  const std::uint64_t additional = additional_groups();
  return ahead < batch_groups() + additional ? 0 : (ahead - additional) / batch_groups();
}

std::uint64_t ReplayBuffer::groups_ahead_max(Instant now) const {
  std::uint64_t groups = 0;
  if (options_.async_generation_ratio) {
    // The batch that is trained on is one of the 1 + alpha.
    const double batches = *options_.async_generation_ratio + (is_training_ ? 0 : 1);
    groups = static_cast<std::uint64_t>(batches * static_cast<double>(batch_groups())) + additional_groups();
  } else {
    groups = demand_.groups_wanted(now);
    if (options_.max_staleness) {
      groups = std::min(groups, std::max<std::uint64_t>(1, *options_.max_staleness) * batch_groups());
    }
    if (groups > 0) groups += additional_groups();
  }
  const std::uint64_t room = options_.rollouts_max - std::min(options_.rollouts_max, buffered_);
  const std::uint64_t groups_max = complete_.size() + std::max(leases_.expected(), room / options_.group_size);
  return std::min(groups, std::max(groups_max, batch_groups()));
}

Version ReplayBuffer::begin_at_least(std::uint64_t ahead) const {
  const std::uint64_t wanted_at = learner_.value + (is_training_ ? 1 : 0) + batch_of(ahead);
  std::uint64_t lag = options_.max_staleness.value_or(wanted_at);
  if (options_.async_generation_ratio) {
    // Of a batch under a ratio of 1.5, half may lag by two steps.
    const double ratio = *options_.async_generation_ratio, part = ratio - std::floor(ratio);
    const std::uint64_t place = ahead < batch_groups() ? ahead : (ahead - batch_of(ahead) * batch_groups());
    const bool may_lag_most = static_cast<double>(place + 1) <= part * static_cast<double>(batch_groups()) || part == 0;
    lag = std::min(lag, static_cast<std::uint64_t>(may_lag_most ? std::ceil(ratio) : std::floor(ratio)));
  }
  return Version{wanted_at - std::min(lag, wanted_at)};
}

std::uint64_t ReplayBuffer::leasable(Instant now, const std::string& worker, std::uint64_t groups) {
  handle_time(now);
  if (published_.empty()) return 0;
  const std::uint64_t most = groups_ahead_max(now);
  std::uint64_t ahead = groups_ahead();
  demand_.handle_released(now, batches_ * batch_groups() + most);
  const std::uint64_t share = leases_.share_left(now, worker, most);
  // What others hold beyond their shares is not for this one to wait for.
  ahead -= std::min(ahead, leases_.excess(now, most));
  std::uint64_t wanted = 0;
  while (wanted < groups && ahead + wanted < most && begin_at_least(ahead + wanted) <= published_.back()) ++wanted;
  if (wanted < groups) demand_.handle_refused();
  return std::min(wanted, share);
}

std::uint64_t ReplayBuffer::take_group() {
  if (again_.empty()) return next_group_++;
  return again_.extract(again_.begin()).value();
}

Version ReplayBuffer::lease(Instant now, const std::string& worker, std::uint64_t group, std::uint64_t first_sequence,
                            std::uint64_t size) {
  const std::uint64_t ahead = groups_ahead();
  const Version least = begin_at_least(ahead);
  const Version version = std::max(published_.empty() ? learner_ : published_.back(), least);
  leases_.add(worker, {.group = group,
                       .first = first_sequence,
                       .size = size,
                       .version = version,
                       .granted = now,
                       .waited = demand_.handle_leased(now, batches_ * batch_groups() + ahead)});
  return least;
}

void ReplayBuffer::handle_abandoned(const RolloutId& id) {
  const std::optional<std::string> tag = leases_.handle_abandoned(id.first, id.second);
  if (!tag) return;
  if (const auto group = open_.find(*tag); group != open_.end()) give_up(group);
}

void ReplayBuffer::handle_not_granted(const std::string& worker, std::uint64_t first_sequence) {
  for (const std::uint64_t group : leases_.handle_not_granted(worker, first_sequence)) again_.insert(group);
}

void ReplayBuffer::handle_worker_lost(const std::string& worker) {
  for (const Lease& lease : leases_.handle_worker_lost(worker)) {
    // Whoever makes the group again brings all of it.
    if (const auto group = open_.find(lease.tag); group != open_.end()) {
      release(group->second, stats_.given_up);
      open_.erase(group);
    }
    if (lease.state == Lease::State::kLapsed) continue;
    again_.insert(lease.group);
    for (std::uint64_t i = 0; i < lease.size; ++i) {
      if (lease.settled[i]) continue;
      ++stats_.lost;
      aborts_.emplace_back(worker, lease.first + i);
    }
  }
}

void ReplayBuffer::abort_all(const std::vector<RolloutId>& in_vain) {
  aborts_.insert(aborts_.end(), in_vain.begin(), in_vain.end());
  stats_.aborted += in_vain.size();
}

std::optional<RolloutId> ReplayBuffer::poll_abort() {
  if (aborts_.empty()) return std::nullopt;
  RolloutId id = std::move(aborts_.front());
  aborts_.pop_front();
  return id;
}

std::vector<std::size_t> ReplayBuffer::choose() const {
  std::vector<std::size_t> order(complete_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (options_.order == SampleOrder::kUniform) {
    // By the batch's number, so that a resumed run draws as the one that was stopped.
    Random random(options_.seed + batches_);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  } else {
    const bool oldest_first = options_.order == SampleOrder::kOldestFirst;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const auto age = [&](std::size_t i) { return std::pair(complete_[i].oldest, complete_[i].number); };
      return oldest_first ? age(a) < age(b) : age(b) < age(a);
    });
  }
  // A ratio of 1.5 lets half of a batch lag by two steps.
  std::uint64_t lagging_most = options_.rollout_batch_size;
  std::optional<Version> most;
  if (options_.async_generation_ratio) {
    const double ratio = *options_.async_generation_ratio, part = ratio - std::floor(ratio);
    const auto lag = static_cast<std::uint64_t>(std::ceil(ratio));
    if (part > 0 && learner_.value >= lag) {
      most = Version{learner_.value - lag};
      lagging_most = static_cast<std::uint64_t>(part * static_cast<double>(options_.rollout_batch_size));
    }
  }
  const std::size_t groups = options_.rollout_batch_size / options_.group_size;
  std::vector<std::size_t> chosen;
  for (const std::size_t i : order) {
    if (chosen.size() == groups) break;
    const auto lagging = static_cast<std::uint64_t>(
        std::count_if(complete_[i].rollouts.begin(), complete_[i].rollouts.end(),
                      [&](const Trajectory& t) { return most && t.oldest_version == *most; }));
    if (lagging > lagging_most) continue;
    lagging_most -= lagging;
    chosen.push_back(i);
  }
  return chosen;
}

Supply ReplayBuffer::supply() const {
  if (choose().size() * options_.group_size == options_.rollout_batch_size) return Supply::kReady;
  if (published_.empty() || published_.back() < floor()) return Supply::kExhausted;
  if (options_.async_generation_ratio) {
    // All that can come lags by the last step of a fractional ratio, of which a batch takes only a part.
    const double ratio = *options_.async_generation_ratio;
    const auto lag = static_cast<std::uint64_t>(std::ceil(ratio));
    if (ratio > std::floor(ratio) && published_.back().value + lag == learner_.value) return Supply::kExhausted;
  }
  return Supply::kWaiting;
}

std::optional<std::vector<RolloutGroup>> ReplayBuffer::take_batch(Instant now) {
  std::vector<std::size_t> chosen = choose();
  if (chosen.size() * options_.group_size != options_.rollout_batch_size) return std::nullopt;
  std::vector<RolloutGroup> batch;
  for (const std::size_t i : chosen) {
    release(complete_[i], stats_.taken);
    batch.push_back(std::move(complete_[i]));
  }
  std::sort(chosen.begin(), chosen.end());
  for (auto i = chosen.rbegin(); i != chosen.rend(); ++i) {
    complete_.erase(complete_.begin() + static_cast<std::ptrdiff_t>(*i));
  }
  ++batches_;
  is_training_ = true;
  demand_.handle_taken(now);
  leases_.handle_batch();
  // What was begun too long ago for the next batch is of no use from now on: the redundant groups of a synchronous one.
  abort_all(leases_.handle_floor(floor_at(Version{learner_.value + 1})));
  for (RolloutGroup& group : batch) {
    std::ranges::sort(group.rollouts, {}, [](const Trajectory& t) { return std::tie(t.sequence, t.worker); });
  }
  std::ranges::sort(batch, {}, &RolloutGroup::tag);
  return batch;
}

}  // namespace weightcast
