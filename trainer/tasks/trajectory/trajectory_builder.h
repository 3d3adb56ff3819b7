#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {

/// Collects one rollout as it happens: what the policy was told, what it sampled under which version, and what each of
/// its turns got. Pure. Invariant: tokens(), mask and log-probabilities are those of a trajectory that
/// check_trajectory() accepts, as soon as a turn has a token.
class TrajectoryBuilder {
 public:
  explicit TrajectoryBuilder(std::span<const std::int32_t> prompt);

  /// The policy sampled `tokens` under `version`; `log_probs` has one value for each. Calls without add_observation()
  /// between them belong to one turn, whose weights changed on the way.
  void add_sampled(std::span<const std::int32_t> tokens, std::span<const float> log_probs, Version version);
  /// The turn that was sampled last is over, and got `reward`.
  void end_turn(double reward);
  /// What the environment said, and what the chat template puts around it.
  void add_observation(std::span<const std::int32_t> tokens);

  /// All so far: what the policy goes on from.
  [[nodiscard]] const std::vector<std::int32_t>& tokens() const { return trajectory_.tokens; }
  [[nodiscard]] std::uint64_t sampled() const { return trajectory_.logprobs.size(); }

  /// The rollout. A turn that was not ended has reward 0. The reward is the sum over turns, which are listed if there
  /// are several. Who sent it, its group, digests and metadata are the caller's to add.
  [[nodiscard]] Trajectory finish();

 private:
  Trajectory trajectory_;
  std::uint64_t turn_begin_ = 0;  // of the turn that is being sampled
  bool in_turn_ = false;
};

}  // namespace weightcast
