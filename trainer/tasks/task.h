#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/chat_message.h"
#include "base/result.h"
#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {

/// How an episode begins: what the policy is asked, and what the reward needs to know.
struct Prompt {
  std::vector<ChatMessage> messages;
  std::string tag;    ///< the group of its rollouts, whose rewards are compared
  Metadata metadata;  ///< for Task::score(); a worker copies it into the trajectory
};

/// What a whole response is worth.
struct Score {
  double reward = 0;
  bool success = false;  ///< whether it does what the prompt asks; a reward may be for a part of that

  bool operator==(const Score&) const = default;
};

/// The score of a task without partial rewards: 1 or 0.
[[nodiscard]] inline Score right_or_wrong(bool right) { return {right ? 1.0 : 0.0, right}; }

/// What an environment answers to an action.
struct StepResult {
  std::string observation;  ///< the next user message; "" at the end
  double reward = 0;
  bool done = false;
  bool success = false;  ///< whether the episode has come to what its prompt asks for; as in Score
};

/// One episode, turn by turn. One thread at a time uses it; Episode bounds it.
class Environment {
 public:
  virtual ~Environment() = default;
  /// Begins the episode of `seed`, whatever went on before. The same seed gives the same episode.
  /// Errors: those of what the environment stands on. It is then given up, and replaced by a new one.
  [[nodiscard]] virtual Result<Prompt> reset(std::uint64_t seed) = 0;
  /// Answers the policy's text, whatever that is: nonsense costs reward, and is no error. Called after reset() and not
  /// after `done`. Errors: as reset().
  [[nodiscard]] virtual Result<StepResult> step(std::string_view action) = 0;
};

/// What a learner trains on: a trajectory as columns of n tokens. Slots that the policy did not sample are zero.
struct Sample {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> loss_mask;   ///< 1 where the token counts in the loss
  std::vector<float> weights;            ///< of the token in the loss
  std::vector<float> rollout_log_probs;  ///< of the policy that sampled; empty if the rollout came without
  std::vector<float> token_rewards;      ///< each turn's reward at its last token
  double reward = 0;                     ///< of the whole trajectory
};

/// One task of the data plane: prompts, rewards, and how a trajectory becomes a sample. Stateless, so that any thread
/// may use it. A task is switched by its name: see tasks/registry.h.
class Task {
 public:
  virtual ~Task() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The number of different prompts; absent if a generator makes them without end.
  [[nodiscard]] virtual std::optional<std::uint64_t> prompt_count() const { return std::nullopt; }
  /// The episode of `index` begins so; equal indices give equal prompts. An index past prompt_count() wraps around.
  /// Errors: as Environment::reset().
  [[nodiscard]] virtual Result<Prompt> prompt(std::uint64_t index) const = 0;
  /// The score of a whole response to the prompt that had `metadata`. A multi-turn task reads the actions of all
  /// turns, one per line. Errors: kInvalidArgument if `metadata` is not what prompt() gives.
  [[nodiscard]] virtual Result<Score> score(const Metadata& metadata, std::string_view response) const = 0;
  /// A right answer to the prompt that had `metadata`, for supervised fine-tuning; absent if the task knows none.
  [[nodiscard]] virtual std::optional<std::string> solution(const Metadata&) const { return std::nullopt; }
  /// A new environment. By default one of a single turn, over prompt() and score(). It must not outlive the task.
  [[nodiscard]] virtual std::unique_ptr<Environment> make_environment() const;
  /// The columns of a trajectory that check_trajectory() has accepted. By default every sampled token weighs 1.
  [[nodiscard]] virtual Sample materialise(const Trajectory& trajectory) const;
};

/// The score of an episode that has begun, whose actions are the lines of `response` up to its end. What comes after
/// `done` is not read. Errors: as Environment::step().
[[nodiscard]] Result<Score> score_lines(Environment& environment, std::string_view response);

/// `metadata[name]`. Errors: kInvalidArgument, which names it, if it is not there.
[[nodiscard]] Result<std::string> metadata_value(const Metadata& metadata, const std::string& name);

}  // namespace weightcast
