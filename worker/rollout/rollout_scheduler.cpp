#include "worker/rollout/rollout_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {

Result<RolloutScheduler> RolloutScheduler::make(const SchedulerOptions& options) {
  WC_TRY(validate(options));
  return RolloutScheduler(options);
}

RolloutScheduler::RolloutScheduler(const SchedulerOptions& options) : options_(options), engines_(options.engines) {}

std::uint64_t RolloutScheduler::slots() const { return std::uint64_t{options_.engines} * options_.slots_per_engine; }

std::uint64_t RolloutScheduler::groups_wanted() const {
  if (is_suspended_) return 0;
  if (std::none_of(engines_.begin(), engines_.end(),
                   [&](const Engine& engine) { return can_begin(engine, kNoVersion); }))
    return 0;
  // One group waits beyond what the slots take, so that a slot never waits for the learner's answer.
  const std::uint64_t wanted = slots() - slots_busy_ + width();
  return wanted > waiting_ ? (wanted - waiting_) / width() : 0;
}

void RolloutScheduler::handle_groups(Instant now, std::uint64_t first, std::uint64_t count, Version least) {
  for (std::uint64_t number = first; number - first < count; ++number) {
    const auto [group, is_new] = groups_.try_emplace(number);
    if (!is_new) continue;
    group->second.members.resize(width());
    group->second.begin_at_least = least;
    for (std::uint32_t m = 0; m < width(); ++m) {
      group->second.members[m].state = State::kGone;  // enter() counts it from here on
      enter(group, m, State::kWaiting, 0);
    }
    update_ready(group);
  }
  dispatch(now);
}

void RolloutScheduler::handle_group_abandoned(Instant now, std::uint64_t number) {
  const auto group = groups_.find(number);
  if (group == groups_.end()) return;
  close(group, RolloutAction::Kind::kGroupDropped, stats_.abandoned, stats_.abandoned);
  ++stats_.groups_dropped;
  dispatch(now);
}

void RolloutScheduler::handle_version(Instant now, std::uint32_t engine, Version version) {
  WC_CHECK(engine < engines_.size());
  engines_[engine].version = version;
  dispatch(now);
}

void RolloutScheduler::handle_step(Instant now, Version learner) {
  learner_ = std::max(learner_, learner);
  const Version least = floor();
  stop_all([&](const Member& member) { return member.version < least; }, stats_.stale);
  dispatch(now);
}

void RolloutScheduler::handle_sync(Instant now, Version least) {
  if (least == begin_at_least_) return;
  begin_at_least_ = least;
  dispatch(now);
}

void RolloutScheduler::handle_generated(Instant now, const RolloutKey& rollout) {
  const auto found = find(rollout);
  if (!found) return;
  const auto [group, m] = *found;
  Member& member = group->second.members[m];
  if (member.state != State::kGenerating) return;
  free_slot(group, m);
  enter(group, m, State::kStepping, member.turn);
  act(RolloutAction::Kind::kStep, rollout);
  dispatch(now);
}

void RolloutScheduler::handle_observation(Instant now, const RolloutKey& rollout) {
  const auto found = find(rollout);
  if (!found) return;
  const auto [group, m] = *found;
  Member& member = group->second.members[m];
  if (member.state != State::kStepping) return;
  enter(group, m, State::kWaiting, member.turn + 1);
  update_ready(group);
  dispatch(now);
}

void RolloutScheduler::handle_finished(Instant now, const RolloutKey& rollout, double reward) {
  // A sum of turns' rewards may be too large where none of them is.
  if (!(std::fabs(reward) <= TrajectoryRules::kRewardMax)) return handle_failed(now, rollout);
  const auto found = find(rollout);
  if (!found) return;
  const auto [group, m] = *found;
  Member& member = group->second.members[m];
  if (member.state != State::kStepping && member.state != State::kGenerating) return;
  if (member.state == State::kGenerating) free_slot(group, m);
  deadlines_.erase({member.deadline, rollout});
  member.reward = reward;
  enter(group, m, State::kFinished, member.turn);
  --group->second.under_way;
  ++group->second.finished;
  settle(group);
  dispatch(now);
}

void RolloutScheduler::handle_failed(Instant now, const RolloutKey& rollout) {
  const auto found = find(rollout);
  if (!found) return;
  const auto [group, m] = *found;
  if (group->second.members[m].state == State::kFinished) return;
  act(RolloutAction::Kind::kAbort, rollout);
  retry(group, m, stats_.failed);
  dispatch(now);
}

void RolloutScheduler::handle_suspended(Instant now) {
  is_suspended_ = true;
  stop_all([](const Member& member) { return member.state != State::kFinished; }, stats_.suspended);
  dispatch(now);
}

void RolloutScheduler::handle_resumed(Instant now) {
  is_suspended_ = false;
  dispatch(now);
}

void RolloutScheduler::handle_time(Instant now) {
  bool is_any = false;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const RolloutKey rollout = deadlines_.begin()->second;
    const auto [group, m] = *find(rollout);
    act(RolloutAction::Kind::kAbort, rollout);
    retry(group, m, stats_.late);
    is_any = true;
  }
  if (is_any) dispatch(now);
}

std::optional<Instant> RolloutScheduler::poll_deadline() const {
  return deadlines_.empty() ? std::nullopt : std::optional(deadlines_.begin()->first);
}

std::optional<RolloutAction> RolloutScheduler::poll_action() {
  if (actions_.empty()) return std::nullopt;
  const RolloutAction action = actions_.front();
  actions_.pop_front();
  return action;
}

Version RolloutScheduler::floor() const {
  std::uint64_t lag = std::numeric_limits<std::uint64_t>::max();
  if (options_.max_staleness) lag = *options_.max_staleness;
  if (options_.async_generation_ratio) {
    lag = std::min(lag, static_cast<std::uint64_t>(std::ceil(*options_.async_generation_ratio)));
  }
  return Version{learner_.value > lag ? learner_.value - lag : 0};
}

bool RolloutScheduler::can_begin(const Engine& engine, Version least) const {
  return engine.version && *engine.version >= std::max({floor(), begin_at_least_, least});
}

std::optional<Version> RolloutScheduler::oldest_of(const Group& group) {
  std::optional<Version> oldest;
  for (const Member& member : group.members) {
    if (member.has_begun && (!oldest || member.version < *oldest)) oldest = member.version;
  }
  return oldest;
}

std::optional<std::pair<RolloutScheduler::Groups::iterator, std::uint32_t>> RolloutScheduler::find(
    const RolloutKey& rollout) {
  const auto group = groups_.find(rollout.group);
  if (group == groups_.end() || rollout.member >= group->second.members.size()) return std::nullopt;
  const Member& member = group->second.members[rollout.member];
  if (!member.has_begun || member.attempt != rollout.attempt) return std::nullopt;
  return std::pair(group, rollout.member);
}

RolloutKey RolloutScheduler::key_of(Groups::const_iterator group, std::uint32_t member) {
  return {group->first, member, group->second.members[member].attempt};
}

void RolloutScheduler::act(RolloutAction::Kind kind, const RolloutKey& rollout, std::uint32_t engine) {
  actions_.push_back({kind, rollout, engine});
}

void RolloutScheduler::enter(Groups::iterator group, std::uint32_t m, State state, std::uint32_t turn) {
  Member& member = group->second.members[m];
  waiting_ -= member.state == State::kWaiting ? 1 : 0;
  group->second.waiting -= member.state == State::kWaiting ? 1 : 0;
  member.state = state;
  member.turn = turn;
  waiting_ += state == State::kWaiting ? 1 : 0;
  group->second.waiting += state == State::kWaiting ? 1 : 0;
}

void RolloutScheduler::free_slot(Groups::iterator group, std::uint32_t m) {
  --engines_[group->second.members[m].engine].busy;
  --slots_busy_;
}

void RolloutScheduler::update_ready(Groups::iterator group) {
  if (group->second.is_ready) ready_.erase({group->second.ready_key, group->first});
  group->second.is_ready = group->second.waiting > 0;
  if (!group->second.is_ready) return;
  // The group that began under the oldest version is the next to exceed the bound.
  const auto oldest = oldest_of(group->second);
  group->second.ready_key = oldest ? oldest->value : std::numeric_limits<std::uint64_t>::max();
  ready_.insert({group->second.ready_key, group->first});
}

void RolloutScheduler::stop(Groups::iterator group, std::uint32_t m, std::uint64_t& counter) {
  Member& member = group->second.members[m];
  const RolloutKey rollout = key_of(group, m);
  if (member.state == State::kFinished) {
    act(RolloutAction::Kind::kForget, rollout);
    ++counter;
    --group->second.finished;
  } else {
    ++counter;
    --group->second.under_way;
    deadlines_.erase({member.deadline, rollout});
    if (member.state == State::kGenerating) free_slot(group, m);
  }
  ++member.attempt;
  member.has_begun = false;
  enter(group, m, State::kWaiting, 0);
}

void RolloutScheduler::retry(Groups::iterator group, std::uint32_t m, std::uint64_t& counter) {
  stop(group, m, counter);
  Member& member = group->second.members[m];
  if (++member.failures >= options_.attempts_max) {
    enter(group, m, State::kGone, 0);
    ++group->second.given_up;
  }
  update_ready(group);
  settle(group);
}

void RolloutScheduler::close(Groups::iterator group, RolloutAction::Kind kind, std::uint64_t& stopped,
                             std::uint64_t& forgotten) {
  for (std::uint32_t m = 0; m < group->second.members.size(); ++m) {
    const Member& member = group->second.members[m];
    if (member.has_begun) {
      const bool is_finished = member.state == State::kFinished;
      if (!is_finished) act(RolloutAction::Kind::kAbort, key_of(group, m));
      stop(group, m, is_finished ? forgotten : stopped);
    }
    enter(group, m, State::kGone, 0);
  }
  act(kind, {group->first, 0, 0});
  update_ready(group);
  groups_.erase(group);
}

void RolloutScheduler::settle(Groups::iterator group) {
  Group& g = group->second;
  if (g.members.size() - g.given_up < options_.group_size) {
    ++stats_.groups_dropped;
    return close(group, RolloutAction::Kind::kGroupDropped, stats_.failed, stats_.forgotten);
  }
  if (g.finished < options_.group_size) return;
  std::optional<double> least, most;
  for (const Member& member : g.members) {
    if (member.state != State::kFinished) continue;
    least = std::min(least.value_or(member.reward), member.reward);
    most = std::max(most.value_or(member.reward), member.reward);
  }
  if (options_.filter_equal_rewards && least == most) {
    ++stats_.groups_filtered;
    return close(group, RolloutAction::Kind::kGroupDropped, stats_.surplus, stats_.forgotten);
  }
  for (std::uint32_t m = 0; m < g.members.size(); ++m) {
    if (g.members[m].state != State::kFinished) continue;
    act(RolloutAction::Kind::kSend, key_of(group, m));
    ++stats_.sent;
    enter(group, m, State::kGone, 0);
    g.members[m].has_begun = false;
  }
  ++stats_.groups_done;
  close(group, RolloutAction::Kind::kGroupDone, stats_.surplus, stats_.forgotten);
}

template <typename IsMeant>
void RolloutScheduler::stop_all(const IsMeant& is_meant, std::uint64_t& counter) {
  for (auto at = groups_.begin(); at != groups_.end();) {
    const auto group = at++;
    bool is_any = false;
    for (std::uint32_t m = 0; m < group->second.members.size(); ++m) {
      const Member& member = group->second.members[m];
      if (!member.has_begun || !is_meant(member)) continue;
      is_any = true;
      const bool is_finished = member.state == State::kFinished;
      if (!is_finished) act(RolloutAction::Kind::kAbort, key_of(group, m));
      stop(group, m, is_finished ? stats_.forgotten : counter);
    }
    if (is_any) update_ready(group);
  }
}

void RolloutScheduler::dispatch(Instant now) {
  if (is_suspended_) return;
  for (auto at = ready_.begin(); at != ready_.end() && slots_busy_ < slots();) {
    const auto group = groups_.find(at->second);
    ++at;
    start_members(now, group);
  }
}

void RolloutScheduler::start_members(Instant now, Groups::iterator group) {
  bool is_any = false;
  for (std::uint32_t m = 0; m < group->second.members.size(); ++m) {
    const Member& member = group->second.members[m];
    if (member.state != State::kWaiting) continue;
    const auto engine = pick_engine(group->second, member);
    if (!engine) continue;
    begin(now, group, m, *engine);
    is_any = true;
  }
  if (is_any) update_ready(group);
}

std::optional<std::uint32_t> RolloutScheduler::pick_engine(const Group& group, const Member& member) const {
  const auto has_room = [&](std::uint32_t engine) {
    return can_begin(engines_[engine], group.begin_at_least) && engines_[engine].busy < options_.slots_per_engine;
  };
  // Where its earlier turns are cached.
  if (member.turn > 0 && has_room(member.engine)) return member.engine;
  std::optional<std::uint32_t> best;
  for (std::uint32_t engine = 0; engine < engines_.size(); ++engine) {
    if (has_room(engine) && (!best || engines_[engine].busy < engines_[*best].busy)) best = engine;
  }
  return best;
}

void RolloutScheduler::begin(Instant now, Groups::iterator group, std::uint32_t m, std::uint32_t engine) {
  Member& member = group->second.members[m];
  const Version version = *engines_[engine].version;
  member.engine = engine;
  ++engines_[engine].busy;
  ++slots_busy_;
  if (member.has_begun) {
    member.version = std::min(member.version, version);
  } else {
    member.has_begun = true;
    member.version = version;
    member.deadline = now + options_.rollout_time_max;
    deadlines_.insert({member.deadline, key_of(group, m)});
    ++group->second.under_way;
    ++stats_.begun;
  }
  enter(group, m, State::kGenerating, member.turn);
  act(RolloutAction::Kind::kGenerate, key_of(group, m), engine);
}

}  // namespace weightcast
