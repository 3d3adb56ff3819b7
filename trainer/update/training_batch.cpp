#include "trainer/update/training_batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace weightcast {

TrainingBatch make_training_batch(const Task& task, const std::vector<RolloutGroup>& groups, Version learner) {
  TrainingBatch batch;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const Trajectory& rollout : groups[group].rollouts) {
      batch.samples.push_back(task.materialise(rollout));
      batch.rewards.push_back(rollout.reward);
      batch.judged += rollout.success ? 1 : 0;
      batch.succeeded += rollout.success.value_or(false) ? 1 : 0;
      batch.lags.push_back(static_cast<double>(learner.value - rollout.oldest_version.value));
      const auto& mask = rollout.response_mask;
      batch.response_lengths.push_back(
          static_cast<std::uint64_t>(std::count(mask.begin(), mask.end(), std::uint8_t{1})));
      batch.group_ids.push_back(group);
    }
  }
  return batch;
}

std::string batch_warning(const TrainingBatch& batch, std::uint64_t max_new_tokens) {
  const auto cut_off = [&](std::uint64_t length) { return length >= max_new_tokens; };
  const auto as_first = [&](double reward) { return reward == batch.rewards.front(); };
  if (batch.rewards.empty()) return "";
  if (!std::ranges::all_of(batch.response_lengths, cut_off) || !std::ranges::all_of(batch.rewards, as_first)) return "";
  return fmt::format("all rewards are {}, and all responses have max_new_tokens ({}): raise it, or check chat_template",
                     batch.rewards.front(), max_new_tokens);
}

void set_rollout_metrics(Metrics& metrics, const ReplayStats& stats, std::uint64_t malformed) {
  metrics["rollouts/admitted"] = static_cast<double>(stats.admitted);
  metrics["rollouts/malformed"] = static_cast<double>(malformed);
  metrics["rollouts/duplicates"] = static_cast<double>(stats.duplicates);
  metrics["rollouts/filtered"] = static_cast<double>(stats.filtered);
  metrics["rollouts/aborted"] = static_cast<double>(stats.aborted);
  metrics["rollouts/lost"] = static_cast<double>(stats.lost);
  for (const auto& [reason, count] : stats.refused) {
    metrics[fmt::format("rollouts/refused/{}", reason)] = static_cast<double>(count);
  }
}

std::string rollout_summary(const ReplayStats& stats, std::uint64_t malformed) {
  std::uint64_t refused = 0;
  std::vector<std::string> reasons;
  for (const auto& [reason, count] : stats.refused) {
    refused += count;
    reasons.push_back(fmt::format("{} {}", reason, count));
  }
  std::string line =
      fmt::format("rollouts: {} admitted, {} trained on, {} malformed, {} duplicates, {} without signal, {} refused",
                  stats.admitted, stats.taken, malformed, stats.duplicates, stats.filtered, refused);
  if (refused > 0) line += fmt::format(" ({})", fmt::join(reasons, ", "));
  return line;
}

void set_batch_metrics(Metrics& metrics, const TrainingBatch& batch, std::uint64_t max_new_tokens) {
  set_summary(metrics, "critic/score", batch.rewards);
  if (batch.judged > 0) {
    metrics["critic/success_rate"] = static_cast<double>(batch.succeeded) / static_cast<double>(batch.judged);
  }
  const std::vector<double> lengths(batch.response_lengths.begin(), batch.response_lengths.end());
  set_summary(metrics, "response_length", lengths);
  const auto clipped = std::count_if(lengths.begin(), lengths.end(),
                                     [&](double length) { return length >= static_cast<double>(max_new_tokens); });
  metrics["response_length/clip_ratio"] = static_cast<double>(clipped) / static_cast<double>(lengths.size());
  set_summary(metrics, "off_policy", batch.lags);
  metrics.erase("off_policy/min");
  metrics["off_policy/median"] = quantile_of(batch.lags, 0.5);
  metrics["off_policy/p90"] = quantile_of(batch.lags, 0.9);
  metrics["off_policy/p99"] = quantile_of(batch.lags, 0.99);
}

}  // namespace weightcast
