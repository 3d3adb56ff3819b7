#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "bench/rollout/propositions.h"
#include "worker/rollout/rollout_scheduler.h"

namespace weightcast::bench {

/// What happens to a simulated worker.
struct WorkerChange {
  enum class Kind {
    kJoins,  ///< until then it was not there
    kDies,   ///< at once, and without a word
    kSlows,  ///< from then on its engines take `factor` times as long
  };
  double at_s = 0;
  std::uint32_t worker = 0;
  Kind kind = Kind::kDies;
  double factor = 3;
};

/// How rollouts are scheduled: as workers do, or with less, as ROLL Flash's baselines.
enum class Scheduling {
  kQueue,       ///< RolloutScheduler
  kWholeGroup,  ///< WholeGroupScheduler
  kBatch,       ///< the same, and nothing is scored, or begun anew, before all that generates has ended
  kLockStep,    ///< LockStepScheduler
};

/// The whole of a simulated training loop: GPUs, responses, environments, learner and faults. A seed gives one run.
/// Workers run the scheduler of weightcast-engine, or an ablated one; what they may generate, and what is trained on,
/// is decided by the learner's replay buffer.
struct RolloutWorldOptions {
  std::uint32_t gpus = 16;
  std::uint32_t slots_per_gpu = 32;
  std::uint32_t workers = 1;  ///< with a scheduler each; the GPUs that generate are divided among them
  std::vector<WorkerChange> changes;
  double train_share = 0;      ///< of the GPUs that train; 0, synchronous: all generate, then all train
  double token_s = 0.02;       ///< of a token, in an engine that decodes one rollout
  double token_slowdown = 0;   ///< each further rollout in the engine makes a token longer by this share
  double slow_gpu_share = 0;   ///< of engines that are slow
  double slow_gpu_factor = 3;  ///< and by how much
  double tokens_mean = 1000;   ///< of a turn; log-normal
  double tokens_sd = 1000;
  double tokens_max = 16'384;
  std::uint32_t turns = 1;

  double environment_s_mean = 0;  ///< from an action to the observation; Gaussian, not below 0
  double environment_s_sd = 0;
  double slow_environment_share = 0;  ///< of rollouts whose environment is slow, each for itself
  double slow_group_share = 0;        ///< of groups of which all environments are slow
  double slow_environment_s = 200;    ///< that a slow one takes beyond the others, on its first turn
  double dead_environment_share = 0;  ///< of rollouts whose environment never answers
  double reward_s = 0;

  std::uint64_t rollout_batch_size = 256;
  double train_gpu_s_per_rollout = 0;  ///< of one GPU; with E epochs, of all of them
  double train_jitter = 0;             ///< a step takes up to so much more or less
  double t_bcast_s = 0;
  bool pauses_for_broadcast = false;  ///< engines stand still for t_bcast_s after each publication, as ECHO-2 counts it
  std::uint64_t publish_interval = 1;  ///< 1 where the learner is synchronous
  std::uint64_t max_additional_running_prompts = 0;
  std::uint64_t num_env_groups = 0;  ///< the same, with those of a batch; 0: none
  double no_signal_share = 0;        ///< of groups whose rewards are all equal

  std::uint64_t steps = 20;
  std::uint64_t warm_up_steps = 2;  ///< before those, not counted
  std::uint64_t seed = 1;

  Scheduling scheduling = Scheduling::kQueue;
  SchedulerOptions scheduler;  ///< engines and slots_per_engine follow from the GPUs
};

/// One training step, from the end of the one before to its own.
struct SimulatedStep {
  double seconds = 0;
  double waited_s = 0;  ///< of the learner, for its batch
  double trained_s = 0;
  double generate_s = 0;  ///< until the last generation that the batch needed ended
  double slot_s = 0;      ///< that slots were generating in
  double longest_s = 0;   ///< of any generation that ended or was stopped
  double staleness_mean = 0;
  double staleness_floor = 0;
  std::uint64_t staleness_max = 0;
  double group_s = 0;  ///< mean of the groups of its batch: from the lease until it is whole

  bool operator==(const SimulatedStep&) const = default;
};

struct RolloutWorldResult {
  std::vector<SimulatedStep> steps;
  double step_s = 0;  ///< mean
  double rollouts_per_s = 0;
  double bubble_ratio = 0;      ///< waited / (waited + trained)
  double busy_share = 0;        ///< of the slots, while they may generate
  double wasted_share = 0;      ///< of what slots generated and nobody trained on
  double dropped_share = 0;     ///< of rollouts that were sent, or stopped for their age: by the buffer's counts
  double group_s = 0;           ///< mean of the groups trained on: from the lease until it is whole
  double staleness_target = 0;  ///< 1 + (group_s + t_bcast_s) / mean seconds of a step
  double staleness_mean = 0;
  /// What the mean would be if each group had begun just in time: all of its rollouts together, in engines of their own
  /// at full speed, under the newest version from whose arrival they were whole when their batch was taken. With steps
  /// of T that is the mean of max(1, ceil((time of the group + t_bcast_s) / T)).
  double staleness_floor = 0;
  std::uint64_t staleness_max = 0;

  /// Proposition 1 of ROLL Flash, on realised sums: with queue scheduling Q generations on K slots end within
  /// sum / K + longest. The largest share of it that a step took. Both propositions speak of queue scheduling with
  /// replication, one turn, no filtering and rewards that take no time; elsewhere these are 0. This one is also 0 for
  /// asynchronous runs, whose generations have no common begin.
  double bound_1_share = 0;
  /// Proposition 2 with realised means, for this run's share of GPUs that train. Single steps may exceed it.
  double bound_2_s = 0;
  std::uint64_t bound_2_violations = 0;  ///< steps that took longer
  BatchWork work;                        ///< what the propositions take, as realised

  SchedulerStats scheduler;
};

/// Errors: kInvalidArgument (an option out of its range); kTimedOut (no batch became ready any more: the options leave
/// nothing that could still happen, or it would take more than ten simulated years).
[[nodiscard]] Result<RolloutWorldResult> run_rollout_world(const RolloutWorldOptions& options);

}  // namespace weightcast::bench
