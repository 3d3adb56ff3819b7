#include "trainer/tasks/trajectory/trajectory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/result.h"
#include "base/text.h"

namespace weightcast {
namespace {

using Refusal = std::optional<TrajectoryRefusal>;

// A worker may add the rewards of its turns in single precision or in another order.
constexpr double kSumTolerance = 1e-4;
constexpr std::size_t kShownBytesMax = 80;

std::string shown(std::string_view text) { return printable(cut_text(text, kShownBytesMax)); }

template <typename... Args>
TrajectoryRefusal refuse(TrajectoryFault fault, fmt::format_string<Args...> format, Args&&... args) {
  return {fault, fmt::format(format, std::forward<Args>(args)...)};
}

/// An empty expectation is met by anything.
bool is_other(const std::string& found, const std::string& expected) { return !expected.empty() && found != expected; }

Refusal check_identity(const Trajectory& t, const TrajectoryRules& rules) {
  if (t.worker.empty()) return refuse(TrajectoryFault::kNoWorker, "'worker' is empty; it names who sent the rollout");
  if (t.group.empty()) return refuse(TrajectoryFault::kNoGroup, "'group' is empty; it is the tag of the prompt");
  if (is_other(t.task, rules.task)) {
    return refuse(TrajectoryFault::kOtherTask, "the rollout is of task '{}', the learner trains '{}'", shown(t.task),
                  rules.task);
  }
  if (is_other(t.model_digest, rules.model_digest)) {
    return refuse(TrajectoryFault::kOtherModel, "model digest '{}' is not the learner's '{}'", shown(t.model_digest),
                  rules.model_digest);
  }
  if (is_other(t.tokenizer_digest, rules.tokenizer_digest)) {
    return refuse(TrajectoryFault::kOtherTokenizer, "tokenizer digest '{}' is not the learner's '{}'",
                  shown(t.tokenizer_digest), rules.tokenizer_digest);
  }
  return std::nullopt;
}

Refusal check_tokens(const Trajectory& t, const TrajectoryRules& rules) {
  const std::size_t n = t.tokens.size();
  if (n == 0) return refuse(TrajectoryFault::kNoTokens, "'tokens' is empty");
  if (n > rules.tokens_max) {
    return refuse(TrajectoryFault::kTooManyTokens, "{} tokens, of at most {}", n, rules.tokens_max);
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (t.tokens[i] < 0 || t.tokens[i] >= rules.vocab_size) {
      return refuse(TrajectoryFault::kTokenOutOfRange, "tokens[{}] is {}, and the vocabulary has {}", i, t.tokens[i],
                    rules.vocab_size);
    }
  }
  if (t.response_mask.size() != n) {
    return refuse(TrajectoryFault::kMaskLength, "'response_mask' has {} values for {} tokens", t.response_mask.size(),
                  n);
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (t.response_mask[i] > 1) {
      return refuse(TrajectoryFault::kMaskValue, "response_mask[{}] is {}, not 0 or 1", i, t.response_mask[i]);
    }
  }
  return std::nullopt;
}

Refusal check_logprobs(const Trajectory& t, const TrajectoryRules& rules, std::size_t sampled) {
  if (t.logprobs.empty() && rules.recompute_logprobs) return std::nullopt;
  if (t.logprobs.empty()) {
    return refuse(TrajectoryFault::kLogprobsMissing,
                  "'logprobs' is empty; rollouts without them need behaviour_logprobs = recompute");
  }
  if (t.logprobs.size() != sampled) {
    return refuse(TrajectoryFault::kLogprobsLength, "'logprobs' has {} values for {} sampled tokens", t.logprobs.size(),
                  sampled);
  }
  for (std::size_t i = 0; i < sampled; ++i) {
    if (!std::isfinite(t.logprobs[i])) {
      return refuse(TrajectoryFault::kLogprobNotFinite, "logprobs[{}] is {}", i, t.logprobs[i]);
    }
    if (t.logprobs[i] > 0) {
      return refuse(TrajectoryFault::kLogprobPositive, "logprobs[{}] is {}; a probability is at most 1", i,
                    t.logprobs[i]);
    }
    if (t.logprobs[i] < rules.logprob_min) {
      return refuse(TrajectoryFault::kLogprobTooSmall, "logprobs[{}] is {}; nothing below {} was ever sampled", i,
                    t.logprobs[i], rules.logprob_min);
    }
  }
  return std::nullopt;
}

Refusal check_versions(const Trajectory& t, std::size_t sampled,
                       const std::function<VersionStanding(Version)>& standing_of) {
  if (t.version_runs.empty()) return refuse(TrajectoryFault::kVersionsMissing, "'version_runs' is empty");
  std::size_t left = sampled;
  Version oldest = t.version_runs.front().version;
  for (std::size_t i = 0; i < t.version_runs.size(); ++i) {
    const VersionRun& run = t.version_runs[i];
    // Compared with what is left: a sum of numbers from outside could wrap around.
    if (run.tokens == 0 || run.tokens > left) {
      return refuse(TrajectoryFault::kVersionsLength, "version_runs[{}] has {} tokens, and {} sampled tokens are left",
                    i, run.tokens, left);
    }
    left -= static_cast<std::size_t>(run.tokens);
    oldest = std::min(oldest, run.version);
    switch (standing_of(run.version)) {
      case VersionStanding::kPublished: break;
      case VersionStanding::kNeverPublished:
        return refuse(TrajectoryFault::kVersionNeverPublished, "version_runs[{}]: version {} was never published", i,
                      run.version.value);
      case VersionStanding::kUnknown:
        return refuse(TrajectoryFault::kVersionUnknown, "version_runs[{}]: version {} is later than the learner's", i,
                      run.version.value);
    }
  }
  if (left != 0) {
    return refuse(TrajectoryFault::kVersionsLength, "'version_runs' leave {} of {} sampled tokens without a version",
                  left, sampled);
  }
  if (t.oldest_version != oldest) {
    return refuse(TrajectoryFault::kOldestVersionWrong, "'oldest_version' is {}, the oldest of the runs {}",
                  t.oldest_version.value, oldest.value);
  }
  return std::nullopt;
}

/// The next run of sampled tokens from `position` on: [begin, end); begin == n after the last one.
std::pair<std::size_t, std::size_t> sampled_run(const std::vector<std::uint8_t>& mask, std::size_t position) {
  std::size_t begin = position;
  while (begin < mask.size() && mask[begin] == 0) ++begin;
  std::size_t end = begin;
  while (end < mask.size() && mask[end] == 1) ++end;
  return {begin, end};
}

Refusal check_rewards(const Trajectory& t, const TrajectoryRules& rules) {
  if (!std::isfinite(t.reward)) return refuse(TrajectoryFault::kRewardNotFinite, "'reward' is {}", t.reward);
  if (std::fabs(t.reward) > rules.reward_max) {
    return refuse(TrajectoryFault::kRewardTooLarge, "'reward' is {}, and at most {} in size counts", t.reward,
                  rules.reward_max);
  }
  if (t.turns.empty()) return std::nullopt;
  double sum = 0, magnitude = std::fabs(t.reward);
  std::size_t position = 0;
  for (std::size_t i = 0; i < t.turns.size(); ++i) {
    const Turn& turn = t.turns[i];
    // Two answers may follow each other without an observation between them, so a run may hold several turns.
    const auto [begin, end] = sampled_run(t.response_mask, position);
    if (turn.begin != begin || turn.end <= turn.begin || turn.end > end) {
      return refuse(TrajectoryFault::kTurnsDisagreeWithMask,
                    "turns[{}] is [{}, {}), and the next tokens that 'response_mask' marks are [{}, {})", i, turn.begin,
                    turn.end, begin, end);
    }
    if (!std::isfinite(turn.reward)) {
      return refuse(TrajectoryFault::kTurnRewardNotFinite, "the reward of turns[{}] is {}", i, turn.reward);
    }
    if (std::fabs(turn.reward) > rules.reward_max) {
      return refuse(TrajectoryFault::kTurnRewardTooLarge,
                    "the reward of turns[{}] is {}, and at most {} in size counts", i, turn.reward, rules.reward_max);
    }
    position = static_cast<std::size_t>(turn.end);
    sum += turn.reward;
    magnitude += std::fabs(turn.reward);
  }
  if (const auto [begin, end] = sampled_run(t.response_mask, position); begin != end) {
    return refuse(TrajectoryFault::kTurnsDisagreeWithMask, "no turn has the sampled tokens [{}, {})", begin, end);
  }
  if (!(std::fabs(sum - t.reward) <= kSumTolerance * std::max(1.0, magnitude))) {
    return refuse(TrajectoryFault::kTurnRewardsSum, "'reward' is {}, and the rewards of the turns add up to {}",
                  t.reward, sum);
  }
  return std::nullopt;
}

Refusal check_metadata(const Trajectory& t, const TrajectoryRules& rules) {
  std::size_t bytes = t.task.size() + t.worker.size() + t.group.size();
  for (const auto& [name, value] : t.metadata) bytes += name.size() + value.size();
  if (bytes <= rules.metadata_bytes_max) return std::nullopt;
  return refuse(TrajectoryFault::kMetadataTooLarge, "names and 'metadata' take {} bytes, of at most {}", bytes,
                rules.metadata_bytes_max);
}

}  // namespace

std::size_t Trajectory::size_bytes() const {
  std::size_t bytes = sizeof(Trajectory) + task.size() + worker.size() + group.size() + model_digest.size() +
                      tokenizer_digest.size() + tokens.size() * sizeof(tokens[0]) + response_mask.size() +
                      logprobs.size() * sizeof(logprobs[0]) + version_runs.size() * sizeof(VersionRun) +
                      turns.size() * sizeof(Turn);
  for (const auto& [name, value] : metadata) bytes += sizeof(Metadata::value_type) + name.size() + value.size();
  return bytes;
}

std::optional<TrajectoryRefusal> check_trajectory(const Trajectory& trajectory, const TrajectoryRules& rules,
                                                  const std::function<VersionStanding(Version)>& standing_of) {
  if (auto refusal = check_identity(trajectory, rules)) return refusal;
  if (auto refusal = check_metadata(trajectory, rules)) return refusal;
  if (auto refusal = check_tokens(trajectory, rules)) return refusal;
  const auto& mask = trajectory.response_mask;
  const auto sampled = static_cast<std::size_t>(std::count(mask.begin(), mask.end(), std::uint8_t{1}));
  if (sampled == 0) return refuse(TrajectoryFault::kNothingSampled, "'response_mask' marks no token");
  if (auto refusal = check_logprobs(trajectory, rules, sampled)) return refusal;
  if (auto refusal = check_versions(trajectory, sampled, standing_of)) return refusal;
  return check_rewards(trajectory, rules);
}

}  // namespace weightcast
