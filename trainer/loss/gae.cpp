#include "trainer/loss/gae.h"

#include <fmt/format.h>

#include <cmath>

namespace weightcast {
namespace {

Error refuse_gae(std::string why) { return fail(Errc::kInvalidArgument, Op::kVerify, "advantages: " + std::move(why)); }

bool counts(std::span<const std::uint8_t> mask, std::size_t i) { return mask.empty() || mask[i] != 0; }

}  // namespace

Result<Gae> gae(std::span<const double> rewards, std::optional<std::span<const double>> values,
                std::span<const std::uint8_t> mask, const GaeOptions& options) {
  if (values && values->size() != rewards.size()) {
    return refuse_gae(fmt::format("{} rewards and {} values", rewards.size(), values->size()));
  }
  if (!mask.empty() && mask.size() != rewards.size()) {
    return refuse_gae(fmt::format("{} rewards and a mask of {}", rewards.size(), mask.size()));
  }
  if (!(options.gamma >= 0 && options.gamma <= 1)) {
    return refuse_gae(fmt::format("gamma is {}, not in [0, 1]", options.gamma));
  }
  if (!(options.lambda >= 0 && options.lambda <= 1)) {
    return refuse_gae(fmt::format("lambda is {}, not in [0, 1]", options.lambda));
  }
  Gae result{std::vector<double>(rewards.size()), std::vector<double>(rewards.size())};
  const double lambda = values ? options.lambda : 1;
  double next_value = 0, next_advantage = 0;
  for (std::size_t i = rewards.size(); i-- > 0;) {
    if (!counts(mask, i)) continue;
    const double value = values ? (*values)[i] : 0;
    if (!std::isfinite(rewards[i])) return refuse_gae(fmt::format("rewards[{}] is {}", i, rewards[i]));
    if (!std::isfinite(value)) return refuse_gae(fmt::format("values[{}] is {}", i, value));
    const double delta = rewards[i] + options.gamma * next_value - value;
    next_advantage = delta + options.gamma * lambda * next_advantage;
    next_value = value;
    result.advantages[i] = next_advantage;
    result.returns[i] = next_advantage + value;
    if (!std::isfinite(result.advantages[i]) || !std::isfinite(result.returns[i])) {
      return refuse_gae(fmt::format("the sums from slot {} on overflow; scale rewards and values down", i));
    }
  }
  return result;
}

void whiten(std::span<double> values, std::span<const std::uint8_t> mask) {
  double n = 0, sum = 0, squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!counts(mask, i)) continue;
    ++n;
    sum += values[i];
  }
  const double mean = n > 0 ? sum / n : 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (counts(mask, i)) squares += (values[i] - mean) * (values[i] - mean);
  }
  const double scale = n > 1 ? 1 / std::sqrt(squares / (n - 1) + 1e-8) : 0;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = counts(mask, i) ? (values[i] - mean) * scale : 0;
}

}  // namespace weightcast
