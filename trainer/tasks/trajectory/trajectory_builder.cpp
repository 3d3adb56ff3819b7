#include "trainer/tasks/trajectory/trajectory_builder.h"

#include <algorithm>

#include "base/result.h"

namespace weightcast {

TrajectoryBuilder::TrajectoryBuilder(std::span<const std::int32_t> prompt) {
  trajectory_.tokens.assign(prompt.begin(), prompt.end());
  trajectory_.response_mask.assign(prompt.size(), 0);
}

void TrajectoryBuilder::add_sampled(std::span<const std::int32_t> tokens, std::span<const float> log_probs,
                                    Version version) {
  WC_CHECK(tokens.size() == log_probs.size());
  if (tokens.empty()) return;
  if (!in_turn_) turn_begin_ = trajectory_.tokens.size();
  in_turn_ = true;
  trajectory_.tokens.insert(trajectory_.tokens.end(), tokens.begin(), tokens.end());
  trajectory_.response_mask.resize(trajectory_.tokens.size(), 1);
  trajectory_.logprobs.insert(trajectory_.logprobs.end(), log_probs.begin(), log_probs.end());
  std::vector<VersionRun>& runs = trajectory_.version_runs;
  if (runs.empty() || runs.back().version != version) runs.push_back({version, 0});
  runs.back().tokens += tokens.size();
  const bool is_first = trajectory_.oldest_version == kNoVersion;
  trajectory_.oldest_version = is_first ? version : std::min(trajectory_.oldest_version, version);
}

void TrajectoryBuilder::end_turn(double reward) {
  WC_CHECK(in_turn_);
  trajectory_.turns.push_back({turn_begin_, trajectory_.tokens.size(), reward});
  in_turn_ = false;
}

void TrajectoryBuilder::add_observation(std::span<const std::int32_t> tokens) {
  if (in_turn_) end_turn(0);
  trajectory_.tokens.insert(trajectory_.tokens.end(), tokens.begin(), tokens.end());
  trajectory_.response_mask.resize(trajectory_.tokens.size(), 0);
}

Trajectory TrajectoryBuilder::finish() {
  if (in_turn_) end_turn(0);
  trajectory_.reward = 0;
  for (const Turn& turn : trajectory_.turns) trajectory_.reward += turn.reward;
  if (trajectory_.turns.size() == 1) trajectory_.turns.clear();
  return std::move(trajectory_);
}

}  // namespace weightcast
