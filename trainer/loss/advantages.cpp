#include "trainer/loss/advantages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace weightcast {
namespace {

constexpr double kEpsilon = 1e-6;
constexpr double kRewardMax = 1e30;  // advantages stay finite in FP32, too. An admitted rollout is far below it

Error refuse_rewards(std::string why) {
  return fail(Errc::kInvalidArgument, Op::kVerify, "advantages: " + std::move(why));
}

/// Writes the advantages of the rewards at `members`.
void normalise(std::span<const double> rewards, const std::vector<std::size_t>& members, AdvantageNorm norm,
               std::vector<double>& result) {
  const bool equal = std::all_of(members.begin(), members.end(),
                                 [&](std::size_t i) { return rewards[i] == rewards[members.front()]; });
  if (equal) return;  // rounding of the mean would leave something, which the division makes large
  const auto n = static_cast<double>(members.size());
  double mean = 0, squares = 0;
  for (const std::size_t i : members) mean += rewards[i] / n;
  for (const std::size_t i : members) squares += (rewards[i] - mean) * (rewards[i] - mean);
  double scale = 1;
  if (norm == AdvantageNorm::kStd || norm == AdvantageNorm::kBatch) {
    scale = 1 / (std::sqrt(squares / (n - 1)) + kEpsilon);
  } else if (norm == AdvantageNorm::kRloo) {
    scale = n / (n - 1);
  }
  for (const std::size_t i : members) result[i] = (rewards[i] - mean) * scale;
}

}  // namespace

Result<std::vector<double>> advantages(std::span<const double> rewards, std::span<const std::size_t> group_ids,
                                       AdvantageNorm norm) {
  if (rewards.size() != group_ids.size()) {
    return refuse_rewards(fmt::format("{} rewards and {} group ids", rewards.size(), group_ids.size()));
  }
  std::unordered_map<std::size_t, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    if (!std::isfinite(rewards[i])) return refuse_rewards(fmt::format("rewards[{}] is {}", i, rewards[i]));
    if (std::abs(rewards[i]) > kRewardMax) {
      return refuse_rewards(fmt::format("rewards[{}] is {}; they are at most {} in size", i, rewards[i], kRewardMax));
    }
    groups[norm == AdvantageNorm::kBatch ? 0 : group_ids[i]].push_back(i);
  }
  std::vector<double> result(rewards.size(), 0);
  for (const auto& [id, members] : groups) normalise(rewards, members, norm, result);
  return result;
}

}  // namespace weightcast
