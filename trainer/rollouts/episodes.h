#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "trainer/config/config.h"
#include "trainer/model/decoder.h"
#include "trainer/rollouts/completion.h"
#include "trainer/tasks/episode.h"
#include "trainer/tasks/reward_pool.h"
#include "trainer/tasks/task.h"
#include "worker/rollout/episode_runner.h"
#include "worker/rollout/prompt_codec.h"

namespace weightcast {

/// One episode to play.
struct EpisodeRequest {
  std::uint64_t index = 0;  ///< of its prompt: Task::prompt()
  std::uint64_t seed = 0;   ///< of its samples
  std::uint64_t group = 0;  ///< the number of its group in the run
};

struct EpisodeOptions {
  EpisodeLimits limits;
  std::uint64_t tokens_max = 0;  ///< of prompt, answers and observations; an episode that comes to it ends
  Version version{};             ///< of the weights
  RunIdentity identity = {};     ///< what the rollouts name
};

/// How a run samples answers of its episodes.
[[nodiscard]] CompletionOptions completion_options(const LearnerConfig& config, const PromptCodec& codec,
                                                   double temperature, double top_p);

/// How a run plays: all but version and identity.
[[nodiscard]] EpisodeOptions episode_options(const LearnerConfig& config);

struct PlayedEpisode {
  Trajectory rollout;  ///< what EpisodeRunner::finish() gives
  std::string answer;  ///< of the last turn
  std::string
      failure;  ///< why there is no rollout: the environment failed, took too long, or said too much; else empty
};

/// Plays episodes side by side, turn by turn: samples all answers together, and lets `rewards` run the environments. An
/// episode of one turn is a completion and its reward. Its result depends on the weights, the request and the machine
/// alone, unless an environment takes too long. Errors: those of the prompts' codec, and of Completer::complete().
[[nodiscard]] Result<std::vector<PlayedEpisode>> play_episodes(Completer& completer,
                                                               const std::shared_ptr<const Task>& task,
                                                               const PromptCodec& codec, RewardPool& rewards,
                                                               std::span<const EpisodeRequest> requests,
                                                               const EpisodeOptions& options);

}  // namespace weightcast
