#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "trainer/tasks/episode.h"
#include "trainer/tasks/reward_pool.h"
#include "trainer/tasks/task.h"
#include "trainer/tasks/trajectory/trajectory_builder.h"
#include "worker/rollout/prompt_codec.h"

namespace weightcast {

/// What every rollout of a run names.
struct RunIdentity {
  std::string model_digest;  ///< SHA-256 of config.json
  std::string tokenizer_digest;
};

struct EpisodeRunnerOptions {
  EpisodeLimits limits;
  std::uint64_t answer_tokens_max = 0;  ///< of one turn
  std::uint64_t tokens_max = 0;         ///< of prompt, answers and observations; an episode that comes to it ends
};

/// One rollout as it is made, of one turn or many. The environment works in jobs for a RewardPool, as it may take long
/// or hang; all else is the caller's thread. The order of calls: begin_job(), handle_begun(), and for each turn
/// add_sampled() until the answer is whole, answer_job(), handle_answered(). When a job has failed the episode is over.
class EpisodeRunner {
 public:
  /// `codec` outlives the runner, and `task` its jobs.
  EpisodeRunner(std::shared_ptr<const Task> task, const PromptCodec& codec, const EpisodeRunnerOptions& options);

  /// Begins the episode of Task::prompt(index).
  [[nodiscard]] RewardPool::Job begin_job(std::uint64_t index);
  /// `outcome` is the job's; tokens() has the prompt now. Errors: the job's; those of PromptCodec::prompt_ids().
  [[nodiscard]] Status handle_begun(Status outcome);

  /// What the policy goes on from: all tokens before this turn.
  [[nodiscard]] const std::vector<TokenId>& tokens() const { return builder_->tokens(); }
  /// The seed of this turn's samples, for a rollout that is sampled with `seed`.
  [[nodiscard]] std::uint64_t turn_seed(std::uint64_t seed) const;
  /// More of this turn's answer, sampled under `version`; `log_probs` has one value for each token.
  void add_sampled(std::span<const TokenId> tokens, std::span<const float> log_probs, Version version);
  /// This turn's answer begins anew.
  void restart_turn() { turn_.clear(); }

  /// The environment answers what was sampled, which is one token at least.
  [[nodiscard]] RewardPool::Job answer_job();
  /// `outcome` is the job's. Whether another turn is wanted; otherwise the episode is over. Errors: the job's, the
  /// environment's, those of PromptCodec::observation_ids().
  [[nodiscard]] Result<bool> handle_answered(Status outcome);

  /// The text of the last answer.
  [[nodiscard]] const std::string& answer() const { return answer_; }
  /// The rollout of an episode that is over, in group `number` of a run; worker and sequence are the caller's to add.
  /// Nothing of the runner may be used after it.
  [[nodiscard]] Trajectory finish(const RunIdentity& identity, std::uint64_t number);

 private:
  struct Stage;
  /// Tokens in a row of one version.
  struct Sampled {
    std::vector<TokenId> tokens;
    std::vector<float> log_probs;
    Version version{};
  };

  const std::shared_ptr<const Task> task_;
  const PromptCodec& codec_;
  const EpisodeRunnerOptions options_;
  const std::shared_ptr<Stage> stage_;  // what jobs touch
  std::optional<TrajectoryBuilder> builder_;
  std::vector<Sampled> turn_;
  std::uint64_t turns_ = 0;  // that are over
  bool is_ended_ = false;    // the last answer has the token that ends it
  std::string answer_;
};

}  // namespace weightcast
