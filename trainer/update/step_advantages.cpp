#include "trainer/update/step_advantages.h"

#include <numeric>
#include <optional>

#include "trainer/loss/advantages.h"
#include "trainer/loss/gae.h"
#include "trainer/loss/policy_loss.h"

namespace weightcast {
namespace {

torch::Tensor row_of(const TokenValues& values) { return at::tensor(values, at::kFloat).unsqueeze(0); }

/// What each token's reward loses. Empty vectors if nothing.
Result<std::vector<TokenValues>> kl_penalties(const StepEstimates& estimates, const LearnerConfig& config,
                                              std::size_t samples) {
  std::vector<TokenValues> penalties(samples);
  if (config.kl_reward_coef == 0) return penalties;
  for (std::size_t i = 0; i < samples; ++i) {
    if (estimates.log_probs[i].empty()) continue;
    const torch::Tensor log_probs = row_of(estimates.log_probs[i]);
    const torch::Tensor penalty = kl_penalty(config.kl_reward_type, config.kl_reward_coef, log_probs,
                                             row_of(estimates.ref_log_probs[i]), at::ones_like(log_probs, at::kBool))
                                      .contiguous();
    penalties[i].assign(penalty.data_ptr<float>(), penalty.data_ptr<float>() + penalty.numel());
  }
  return penalties;
}

Result<StepAdvantages> group_advantages(const TrainingBatch& batch, const std::vector<double>& rewards,
                                        const LearnerConfig& config) {
  StepAdvantages result;
  WC_ASSIGN(const std::vector<double> of_rollouts, advantages(rewards, batch.group_ids, config.advantage_norm));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    result.advantages.emplace_back(count_tokens(batch.samples[i]), static_cast<float>(of_rollouts[i]));
  }
  set_summary(result.metrics, "critic/advantages", of_rollouts);
  return result;
}

/// Of the tokens that count: those of turns' ends have rewards, all lose what KL takes.
Result<StepAdvantages> token_advantages(const TrainingBatch& batch, const StepEstimates& estimates,
                                        const std::vector<TokenValues>& penalties, const LearnerConfig& config) {
  StepAdvantages result;
  std::vector<double> all, all_returns;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Sample& sample = batch.samples[i];
    std::vector<double> rewards;
    for (std::size_t p = 0; p < sample.tokens.size(); ++p) {
      if (!counts(sample, p)) continue;
      const double penalty = penalties[i].empty() ? 0 : penalties[i][rewards.size()];
      rewards.push_back(sample.token_rewards[p] - penalty);
    }
    std::optional<std::vector<double>> values;
    if (!estimates.values.empty()) values.emplace(estimates.values[i].begin(), estimates.values[i].end());
    WC_ASSIGN(const Gae sequence, gae(rewards, values, {}, {config.gamma, config.gae_lambda}));
    result.advantages.emplace_back(rewards.size());
    all.insert(all.end(), sequence.advantages.begin(), sequence.advantages.end());
    all_returns.insert(all_returns.end(), sequence.returns.begin(), sequence.returns.end());
    if (values) result.returns.emplace_back(sequence.returns.begin(), sequence.returns.end());
  }
  if (config.advantage_norm != AdvantageNorm::kNone) whiten(all, {});
  auto next = all.begin();
  for (TokenValues& of_sample : result.advantages) {
    for (float& value : of_sample) value = static_cast<float>(*next++);
  }
  set_summary(result.metrics, "critic/advantages", all);
  set_summary(result.metrics, "critic/returns", all_returns);
  return result;
}

}  // namespace

std::size_t count_tokens(const Sample& sample) {
  std::size_t counted = 0;
  for (std::size_t p = 0; p < sample.tokens.size(); ++p) counted += counts(sample, p) ? 1 : 0;
  return counted;
}

Result<StepAdvantages> step_advantages(const TrainingBatch& batch, const StepEstimates& estimates,
                                       const LearnerConfig& config) {
  WC_ASSIGN(const std::vector<TokenValues> penalties, kl_penalties(estimates, config, batch.size()));
  std::vector<double> rewards = batch.rewards;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    rewards[i] -= std::accumulate(penalties[i].begin(), penalties[i].end(), 0.0);
  }
  WC_ASSIGN(StepAdvantages result, config.advantage_estimator == AdvantageEstimator::kGae
                                       ? token_advantages(batch, estimates, penalties, config)
                                       : group_advantages(batch, rewards, config));
  if (config.kl_reward_coef > 0) set_summary(result.metrics, "critic/rewards", rewards);
  return result;
}

}  // namespace weightcast
