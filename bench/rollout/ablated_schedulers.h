#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "worker/rollout/rollout_scheduler.h"

namespace weightcast::bench {

// ROLL Flash (arXiv 2510.11345) compares its scheduling with less. These stand between the scheduler of workers and its
// caller, and hold back what would come too early. They have those of its inputs that a RolloutWorld uses.

/// Without environment-level asynchrony: all rollouts wait for the slowest environment between two turns, and new
/// groups come when all have ended.
class LockStepScheduler : public RolloutScheduler {
 public:
  /// Errors: those of RolloutScheduler::make().
  [[nodiscard]] static Result<LockStepScheduler> make(const SchedulerOptions& options);

  [[nodiscard]] std::uint64_t groups_wanted() const;
  void handle_observation(Instant now, const RolloutKey& rollout);
  void handle_finished(Instant now, const RolloutKey& rollout, double reward);
  [[nodiscard]] std::optional<RolloutAction> poll_action();

 private:
  explicit LockStepScheduler(RolloutScheduler scheduler) : RolloutScheduler(std::move(scheduler)) {}

  std::set<RolloutKey> in_turn_;   // they generate, or their environment has not answered
  std::set<RolloutKey> observed_;  // they wait for those
  Instant now_{};                  // of the last input here
};

/// Without prompt replication: an engine decodes a group as one, in slots that stay taken until the last of its
/// rollouts is generated. The scheduler below sees a group as one rollout. Rollouts have one turn.
class WholeGroupScheduler : public RolloutScheduler {
 public:
  /// `is_batch`: without queue scheduling, too. It asks for as many groups as there are, scores nothing before all are
  /// generated, and asks again when all have been scored. Errors: those of RolloutScheduler::make(); kInvalidArgument
  /// (group_size is above slots_per_engine, or there is a group_size_redundancy).
  [[nodiscard]] static Result<WholeGroupScheduler> make(const SchedulerOptions& options, bool is_batch);

  [[nodiscard]] std::uint64_t groups_wanted() const;
  void handle_generated(Instant now, const RolloutKey& rollout);
  void handle_finished(Instant now, const RolloutKey& rollout, double reward);
  [[nodiscard]] std::optional<RolloutAction> poll_action();
  [[nodiscard]] std::uint64_t slots() const;
  [[nodiscard]] SchedulerStats stats() const;

 private:
  WholeGroupScheduler(RolloutScheduler scheduler, const SchedulerOptions& options, bool is_batch)
      : RolloutScheduler(std::move(scheduler)), options_(options), is_batch_(is_batch) {}

  void act_on_members(const RolloutAction& action);

  SchedulerOptions options_;
  bool is_batch_;
  std::set<RolloutKey> generating_, generated_, stepping_;
  std::map<std::uint64_t, std::vector<double>> rewards_;  // by group
  std::deque<RolloutAction> actions_;
  std::uint64_t filtered_ = 0;  // groups
};

}  // namespace weightcast::bench
