#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/settings/words.h"

namespace weightcast {

/// What a task says about a prompt or a rollout: names and values, kept as text.
using Metadata = std::map<std::string, std::string>;

/// Sampled tokens in a row that one version of the weights produced.
struct VersionRun {
  Version version{};
  std::uint64_t tokens = 0;

  bool operator==(const VersionRun&) const = default;
};

/// One answer of the policy within a trajectory, and what the environment gave for it.
struct Turn {
  std::uint64_t begin = 0;  ///< position of its first token
  std::uint64_t end = 0;    ///< one past its last token
  double reward = 0;

  bool operator==(const Turn&) const = default;
};

/// One rollout, as a worker sends it and as the learner trains on it. Immutable once made.
/// n is the number of tokens, m the number of those that the policy sampled.
struct Trajectory {
  std::string task;
  std::string worker;          ///< who sent it; with `sequence` its identity
  std::uint64_t sequence = 0;  ///< counts a worker's rollouts, from any number on
  std::string group;           ///< the adapter's tag: rollouts whose rewards are compared
  std::string model_digest;    ///< of the configuration that the weights belong to
  std::string tokenizer_digest;
  std::vector<std::int32_t> tokens;         ///< n: prompt, answers and observations
  std::vector<std::uint8_t> response_mask;  ///< n: 1 where the policy sampled the token, 0 elsewhere
  std::vector<float> logprobs;              ///< m, natural logarithms; of the distribution that was sampled from
  std::vector<VersionRun> version_runs;     ///< over the m sampled tokens, in their order
  Version oldest_version{};                 ///< the least of `version_runs`
  double reward = 0;                        ///< the sum over `turns`, if there are any
  std::optional<bool> success;              ///< whether it does what its prompt asks; absent: nobody has said
  std::vector<Turn> turns;                  ///< ascending; together they cover what the policy sampled. Empty: one turn
  Metadata metadata;

  bool operator==(const Trajectory&) const = default;
  /// Memory that it takes, about.
  [[nodiscard]] std::size_t size_bytes() const;
};

/// Why a trajectory cannot be trained on. The words are those of metrics and of replies.
enum class TrajectoryFault {
  kNoWorker,
  kNoGroup,
  kOtherTask,
  kOtherModel,
  kOtherTokenizer,
  kNoTokens,
  kTooManyTokens,
  kTokenOutOfRange,
  kMaskLength,
  kMaskValue,
  kNothingSampled,
  kLogprobsMissing,
  kLogprobsLength,
  kLogprobNotFinite,
  kLogprobPositive,
  kLogprobTooSmall,
  kVersionsMissing,
  kVersionsLength,
  kVersionUnknown,
  kVersionNeverPublished,
  kOldestVersionWrong,
  kRewardNotFinite,
  kRewardTooLarge,
  kTurnsDisagreeWithMask,
  kTurnRewardNotFinite,
  kTurnRewardTooLarge,
  kTurnRewardsSum,
  kMetadataTooLarge,
};
inline constexpr std::size_t kTrajectoryFaultCount = static_cast<std::size_t>(TrajectoryFault::kMetadataTooLarge) + 1;
constexpr Words<kTrajectoryFaultCount> words_of(TrajectoryFault) {
  return {"no_worker",
          "no_group",
          "other_task",
          "other_model",
          "other_tokenizer",
          "no_tokens",
          "too_many_tokens",
          "token_out_of_range",
          "mask_length",
          "mask_value",
          "nothing_sampled",
          "logprobs_missing",
          "logprobs_length",
          "logprob_not_finite",
          "logprob_positive",
          "logprob_too_small",
          "versions_missing",
          "versions_length",
          "version_unknown",
          "version_never_published",
          "oldest_version_wrong",
          "reward_not_finite",
          "reward_too_large",
          "turns_disagree_with_mask",
          "turn_reward_not_finite",
          "turn_reward_too_large",
          "turn_rewards_sum",
          "metadata_too_large"};
}

struct TrajectoryRefusal {
  TrajectoryFault fault;
  std::string detail;  ///< what is wrong, where in the trajectory, and what was expected
};

/// What a learner expects of every trajectory. An empty text expects nothing.
struct TrajectoryRules {
  /// Rewards of others, and of each turn, in size. What the learner makes of them stays finite in FP32: a sum over 10^6
  /// tokens of an advantage times three ratios at their clamp of e^20 is below 3e38. No task gives more than hundreds.
  static constexpr double kRewardMax = 1e6;
  /// Logits of FP32 differ by some hundreds, and a temperature may be as low as 0.01. The loss clamps ratios far
  /// earlier, at e^20, but metrics and estimators of the KL take log-probabilities as they are, and their squares.
  static constexpr float kLogprobMin = -1e5F;

  std::string task;
  std::string model_digest;
  std::string tokenizer_digest;
  std::int32_t vocab_size = 0;
  std::uint64_t tokens_max = 32768;
  std::uint64_t metadata_bytes_max = 65536;
  /// Behaviour log-probabilities may be absent: the learner recomputes them.
  bool recompute_logprobs = false;
  double reward_max = kRewardMax;
  float logprob_min = kLogprobMin;
};

/// What a reader takes of one rollout before check_trajectory() judges it. Beyond it the rollout is kTooLarge.
struct TrajectoryLimits {
  /// Of `tokens`, and so of all else that has at most one entry per token: flags, log-probabilities, turns, versions.
  std::uint64_t tokens_max = std::numeric_limits<std::uint64_t>::max();
  /// Of each name, and of `metadata` together.
  std::uint64_t metadata_bytes_max = std::numeric_limits<std::uint64_t>::max();
};

enum class VersionStanding {
  kPublished,
  kNeverPublished,  ///< not later than the learner, but no worker can have had it
  kUnknown,         ///< later than the learner
};

/// What is wrong with `trajectory`, or nothing. `standing_of` tells of each version in it where it stands.
[[nodiscard]] std::optional<TrajectoryRefusal> check_trajectory(
    const Trajectory& trajectory, const TrajectoryRules& rules,
    const std::function<VersionStanding(Version)>& standing_of);

}  // namespace weightcast
