#include "bench/rollout/ablated_schedulers.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace weightcast::bench {

using Kind = RolloutAction::Kind;

Result<LockStepScheduler> LockStepScheduler::make(const SchedulerOptions& options) {
  WC_ASSIGN(RolloutScheduler scheduler, RolloutScheduler::make(options));
  return LockStepScheduler(std::move(scheduler));
}

std::uint64_t LockStepScheduler::groups_wanted() const {
  return groups_open() > 0 ? 0 : RolloutScheduler::groups_wanted();
}

void LockStepScheduler::handle_observation(Instant now, const RolloutKey& rollout) {
  now_ = now;
  if (in_turn_.erase(rollout) > 0) observed_.insert(rollout);
}

void LockStepScheduler::handle_finished(Instant now, const RolloutKey& rollout, double reward) {
  now_ = now;
  in_turn_.erase(rollout);
  RolloutScheduler::handle_finished(now, rollout, reward);
}

std::optional<RolloutAction> LockStepScheduler::poll_action() {
  auto action = RolloutScheduler::poll_action();
  if (!action && in_turn_.empty() && waiting() == 0) {
    for (const RolloutKey& rollout : std::exchange(observed_, {})) RolloutScheduler::handle_observation(now_, rollout);
    action = RolloutScheduler::poll_action();
  }
  if (!action) return action;
  if (action->kind == Kind::kGenerate) in_turn_.insert(action->rollout);
  if (action->kind == Kind::kAbort) {
    in_turn_.erase(action->rollout);
    observed_.erase(action->rollout);
  }
  return action;
}

Result<WholeGroupScheduler> WholeGroupScheduler::make(const SchedulerOptions& options, bool is_batch) {
  if (options.group_size_redundancy > 0 || options.group_size > options.slots_per_engine) {
    return fail(
        Errc::kInvalidArgument, Op::kConfigure,
        fmt::format("an engine decodes a group as one, in group_size slots, {} of slots_per_engine, {}, and with "
                    "no group_size_redundancy; that is {}",
                    options.group_size, options.slots_per_engine, options.group_size_redundancy));
  }
  SchedulerOptions of_groups = options;
  of_groups.slots_per_engine /= options.group_size;
  of_groups.group_size = 1;
  of_groups.filter_equal_rewards = false;
  WC_ASSIGN(RolloutScheduler scheduler, RolloutScheduler::make(of_groups));
  return WholeGroupScheduler(std::move(scheduler), options, is_batch);
}

std::uint64_t WholeGroupScheduler::groups_wanted() const {
  const std::uint64_t wanted = RolloutScheduler::groups_wanted();
  if (!is_batch_ || wanted == 0) return wanted;
  // Those that find no slot wait for one.
  return groups_open() > 0 ? 0 : std::numeric_limits<std::uint64_t>::max();
}

void WholeGroupScheduler::handle_generated(Instant now, const RolloutKey& rollout) {
  if (generating_.erase(rollout) == 0) return;
  generated_.insert(rollout);
  const auto next = generating_.lower_bound({rollout.group, 0, 0});
  if (next != generating_.end() && next->group == rollout.group) return;
  RolloutScheduler::handle_generated(now, {rollout.group, 0, rollout.attempt});
}

void WholeGroupScheduler::handle_finished(Instant now, const RolloutKey& rollout, double reward) {
  if (stepping_.erase(rollout) == 0) return;
  std::vector<double>& rewards = rewards_[rollout.group];
  rewards.push_back(reward);
  if (rewards.size() < options_.group_size) return;
  if (options_.filter_equal_rewards && std::ranges::count(rewards, reward) == std::ssize(rewards)) {
    ++filtered_;
    return handle_group_abandoned(now, rollout.group);
  }
  RolloutScheduler::handle_finished(now, {rollout.group, 0, rollout.attempt}, reward);
}

std::optional<RolloutAction> WholeGroupScheduler::poll_action() {
  while (const auto action = RolloutScheduler::poll_action()) act_on_members(*action);
  if (!is_batch_ || (generating_.empty() && waiting() == 0)) {
    for (const RolloutKey& rollout : std::exchange(generated_, {})) {
      stepping_.insert(rollout);
      actions_.push_back({Kind::kStep, rollout});
    }
  }
  if (actions_.empty()) return std::nullopt;
  const RolloutAction action = actions_.front();
  actions_.pop_front();
  return action;
}

void WholeGroupScheduler::act_on_members(const RolloutAction& action) {
  if (action.kind == Kind::kStep) return;  // its members step
  if (action.kind != Kind::kGenerate) rewards_.erase(action.rollout.group);
  if (action.kind == Kind::kGroupDone || action.kind == Kind::kGroupDropped) return actions_.push_back(action);
  for (std::uint32_t member = 0; member < options_.group_size; ++member) {
    const RolloutKey rollout{action.rollout.group, member, action.rollout.attempt};
    if (action.kind == Kind::kGenerate) {
      generating_.insert(rollout);
    } else {
      for (auto* keys : {&generating_, &generated_, &stepping_}) keys->erase(rollout);
    }
    actions_.push_back({action.kind, rollout, action.engine});
  }
}

std::uint64_t WholeGroupScheduler::slots() const { return std::uint64_t{options_.engines} * options_.slots_per_engine; }

SchedulerStats WholeGroupScheduler::stats() const {
  SchedulerStats stats = RolloutScheduler::stats();
  stats.abandoned -= filtered_;
  stats.forgotten += filtered_;
  stats.groups_dropped -= filtered_;
  stats.groups_filtered = filtered_;
  for (const auto counter : {&SchedulerStats::begun, &SchedulerStats::sent, &SchedulerStats::forgotten,
                             &SchedulerStats::surplus, &SchedulerStats::stale, &SchedulerStats::suspended,
                             &SchedulerStats::failed, &SchedulerStats::late, &SchedulerStats::abandoned}) {
    stats.*counter *= options_.group_size;
  }
  return stats;
}

}  // namespace weightcast::bench
