#include "trainer/replay/replay_buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/random.h"

namespace weightcast {
namespace {

constexpr std::string_view kStale = "stale";
constexpr std::string_view kGroupClosed = "group_closed";
constexpr std::string_view kSequenceTooOld = "sequence_too_old";
constexpr std::string_view kTooManyWorkers = "too_many_workers";

bool has_signal(const RolloutGroup& group) {
  return std::any_of(group.rollouts.begin(), group.rollouts.end(),
                     [&](const Trajectory& t) { return t.reward != group.rollouts.front().reward; });
}

}  // namespace

Result<ReplayBuffer> ReplayBuffer::make(const ReplayOptions& options, const TrajectoryRules& rules) {
  WC_TRY(validate(options, rules));
  return ReplayBuffer(options, rules);
}

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

Arrival ReplayBuffer::refuse(std::string_view reason, std::string detail) {
  const auto found = stats_.refused.find(reason);
  if (found != stats_.refused.end()) {
    ++found->second;
  } else {
    stats_.refused.emplace(reason, 1);
  }
  return {Admission::kRefused, reason, std::move(detail)};
}

Arrival ReplayBuffer::handle_trajectory(Instant now, Trajectory trajectory) {
  handle_time(now);
  const RolloutId id{trajectory.worker, trajectory.sequence};
  const auto refusal = check_trajectory(trajectory, rules_, [this](Version version) { return standing_of(version); });
  if (refusal) {
    // One of a version that is not known yet comes again.
    if (refusal->fault != TrajectoryFault::kVersionUnknown) started_.erase(id);
    return refuse(to_string(refusal->fault), refusal->detail);
  }
  // All have numbers, or the check would have refused it.
  trajectory.oldest_version = number_of(trajectory.oldest_version).value_or(kNoVersion);
  for (VersionRun& run : trajectory.version_runs) run.version = number_of(run.version).value_or(kNoVersion);
  const auto worker = workers_.find(trajectory.worker);
  if (worker != workers_.end()) {
    switch (worker->second.sequences.look_up(trajectory.sequence)) {
      case SequenceSet::Seen::kNew: break;
      case SequenceSet::Seen::kSeen: ++stats_.duplicates; return {Admission::kDuplicate, {}, {}};
      case SequenceSet::Seen::kTooOld:
        return refuse(kSequenceTooOld,
                      fmt::format("sequence number {} is too far behind the worker's others", trajectory.sequence));
    }
  } else if (workers_.size() >= options_.workers_max) {
    return refuse(kTooManyWorkers, fmt::format("rollouts of {} workers are known already", workers_.size()));
  }
  if (trajectory.oldest_version < floor()) {
    started_.erase(id);
    return refuse(kStale, fmt::format("version {} is too old; the learner is at {} and takes {} and later",
                                      trajectory.oldest_version.value, learner_.value, floor().value));
  }
  if (closed_.count(trajectory.group) != 0) {
    started_.erase(id);
    return refuse(kGroupClosed,
                  fmt::format("its group has all of its {} rollouts, or was given up", options_.group_size));
  }
  const std::uint64_t bytes = trajectory.size_bytes();
  if (!make_room(bytes, trajectory.group)) {
    ++stats_.full;
    return {Admission::kFull,
            {},
            fmt::format("the buffer holds {} rollouts in {} bytes; send it again later", buffered_, buffered_bytes_)};
  }
  admit(now, std::move(trajectory), bytes);
  return {};
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
  auto [worker, is_new] =
      workers_.try_emplace(trajectory.worker, WorkerLog{SequenceSet(options_.gaps_per_worker_max), Version{}});
  worker->second.sequences.insert(trajectory.sequence);
  worker->second.newest = std::max(worker->second.newest, trajectory.oldest_version);

  auto [group, begins] = open_.try_emplace(trajectory.group);
  if (begins) {
    group->second.tag = trajectory.group;
    group->second.oldest = trajectory.oldest_version;
    group->second.number = stats_.admitted;
    group->second.first_arrival = now;
  }
  const auto start = started_.find({trajectory.worker, trajectory.sequence});
  if (start != started_.end()) {
    group->second.lease = start->second.lease;
    started_.erase(start);
  }
  ++stats_.admitted;
  ++buffered_;
  buffered_bytes_ += bytes;
  group->second.bytes += bytes;
  group->second.oldest = std::min(group->second.oldest, trajectory.oldest_version);
  group->second.rollouts.push_back(std::move(trajectory));
  if (group->second.rollouts.size() < options_.group_size) return;
  RolloutGroup done = std::move(group->second);
  open_.erase(group);
  complete(std::move(done));
}

void ReplayBuffer::complete(RolloutGroup group) {
  close(group.tag);
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
  for (auto& [name, log] : workers_) move(log.newest);
  for (auto& [id, start] : started_) move(start.version);
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
  std::erase_if(started_, [&](const auto& start) {
    if (start.second.version >= least) return false;
    aborts_.push_back(start.first);
    ++stats_.aborted;
    return true;
  });
  // What comes late for such a group, and what such a worker sends again, is stale: nothing need be remembered.
  while (!closed_order_.empty() && closed_.at(closed_order_.front()) < least) {
    closed_.erase(closed_order_.front());
    closed_order_.pop_front();
  }
  std::erase_if(workers_, [&](const auto& worker) { return worker.second.newest < least; });
}

void ReplayBuffer::handle_time(Instant now) {
  for (auto group = open_.begin(); group != open_.end();) {
    const auto next = std::next(group);
    if (now - group->second.first_arrival >= options_.group_time_max) give_up(group);
    group = next;
  }
  stats_.lost += std::erase_if(started_, [&](const auto& start) { return now >= start.second.deadline; });
}

std::optional<Instant> ReplayBuffer::poll_deadline() const {
  std::optional<Instant> deadline;
  const auto consider = [&](Instant at) { deadline = deadline ? std::min(*deadline, at) : at; };
  for (const auto& [tag, group] : open_) consider(group.first_arrival + options_.group_time_max);
  for (const auto& [id, start] : started_) consider(start.deadline);
  return deadline;
}

std::uint64_t ReplayBuffer::start(Instant now, const std::string& worker, std::uint64_t first_sequence,
                                  std::uint64_t count) {
  handle_time(now);
  // What begins while the learner trains on a batch is for its next step at the earliest.
  const Version least = floor_at(Version{learner_.value + (is_training_ ? 1 : 0)});
  if (published_.empty() || published_.back() < least) return 0;
  std::uint64_t limit = options_.rollouts_max;
  if (options_.async_generation_ratio || options_.max_staleness) {
    // Without a ratio: with more batches ahead than max_staleness the last one would be too old when its turn comes.
    const double batches = options_.async_generation_ratio
                               ? 1 + *options_.async_generation_ratio
                               : std::max(1.0, static_cast<double>(*options_.max_staleness));
    limit = std::min(limit, static_cast<std::uint64_t>(batches * static_cast<double>(options_.rollout_batch_size)));
  }
  std::uint64_t granted = 0;
  const std::uint64_t buffered = buffered_ - stranded();
  while (granted < count && buffered + started_.size() < limit) {
    started_[{worker, first_sequence + granted}] = {published_.back(), now + options_.start_time_max, first_sequence};
    ++granted;
  }
  return granted;
}

std::uint64_t ReplayBuffer::stranded() const {
  std::uint64_t rollouts = 0;
  for (const auto& [tag, group] : open_) {
    if (!group.lease) continue;
    const std::string& worker = group.rollouts.front().worker;
    // A lease's numbers follow each other, so the least that is left is one of its own, if any is.
    const auto left = started_.lower_bound({worker, *group.lease});
    const bool comes = left != started_.end() && left->first.first == worker && left->second.lease == *group.lease;
    rollouts += comes ? 0 : group.rollouts.size();
  }
  return rollouts;
}

void ReplayBuffer::handle_held(Instant now, const RolloutId& id, std::uint64_t lease) {
  const auto worker = workers_.find(id.first);
  const bool has_arrived =
      worker != workers_.end() && worker->second.sequences.look_up(id.second) != SequenceSet::Seen::kNew;
  if (has_arrived || started_.size() >= options_.rollouts_max) return;
  const Version version = published_.empty() ? learner_ : published_.back();
  started_.try_emplace(id, Start{version, now + options_.start_time_max, lease});
}

void ReplayBuffer::handle_abandoned(const RolloutId& id) { started_.erase(id); }

void ReplayBuffer::handle_not_started(const std::string& worker, std::uint64_t first_sequence) {
  const auto first = started_.lower_bound({worker, first_sequence});
  auto end = first;
  while (end != started_.end() && end->first.first == worker) ++end;
  started_.erase(first, end);
}

void ReplayBuffer::handle_worker_lost(const std::string& worker) {
  const std::size_t before = started_.size();
  handle_not_started(worker, 0);
  stats_.lost += before - started_.size();
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

std::optional<std::vector<RolloutGroup>> ReplayBuffer::take_batch() {
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
  for (RolloutGroup& group : batch) {
    std::ranges::sort(group.rollouts, {}, [](const Trajectory& t) { return std::tie(t.sequence, t.worker); });
  }
  std::ranges::sort(batch, {}, &RolloutGroup::tag);
  return batch;
}

}  // namespace weightcast
