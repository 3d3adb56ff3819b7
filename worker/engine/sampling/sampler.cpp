#include "worker/engine/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "worker/engine/kernels/kernels.h"

namespace weightcast {
namespace {

// A token is found by the sums of so many weights first.
constexpr std::size_t kPartWeights = 1024;
// top_p rarely keeps more; if it does, so many more are put in order each time, by this factor.
constexpr std::size_t kOrderedFirst = 256;
constexpr std::size_t kOrderedFactor = 8;

void penalise(std::span<float> logits, double penalty, std::span<const TokenId> seen, std::vector<bool>& is_seen) {
  is_seen.assign(logits.size(), false);
  for (const TokenId token : seen) {
    if (is_seen[static_cast<std::size_t>(token)]) continue;
    is_seen[static_cast<std::size_t>(token)] = true;
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
}

}  // namespace

Status check_sampling(const SamplingOptions& options) {
  const auto refuse = [](std::string_view what, auto value, std::string_view range) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("{} is {}; it is {}", what, value, range));
  };
  // Written so that NaN is refused.
  // A logit that is divided by less may be infinite.
  if (!(options.repetition_penalty >= 0.01 && options.repetition_penalty <= 100)) {
    return refuse("repetition_penalty", options.repetition_penalty, "0.01 to 100");
  }
  if (!(options.temperature == 0 || (options.temperature >= 1e-3 && options.temperature <= 100))) {
    return refuse("temperature", options.temperature, "0, or from 0.001 to 100");
  }
  if (options.top_k < 0) return refuse("top_k", options.top_k, "0, for all tokens, or more");
  if (!(options.top_p > 0 && options.top_p <= 1)) return refuse("top_p", options.top_p, "above 0, and at most 1");
  if (!(options.min_p >= 0 && options.min_p <= 1)) return refuse("min_p", options.min_p, "from 0 to 1");
  return {};
}

std::optional<double> Sampler::weigh(std::span<const float> logits, double temperature) {
  const kernels::Kernels& kernel = kernels::best();
  greatest_ = kernel.greatest(logits.data(), logits.size());
  if (!std::isfinite(greatest_)) return std::nullopt;
  weights_.assign(logits.begin(), logits.end());
  part_sums_.clear();
  double sum = 0;
  for (std::size_t first = 0; first < weights_.size(); first += kPartWeights) {
    const std::size_t count = std::min(kPartWeights, weights_.size() - first);
    part_sums_.push_back(
        kernel.exponentials(weights_.data() + first, count, greatest_, static_cast<float>(1 / temperature)));
    sum += part_sums_.back();
  }
  return sum;
}

void Sampler::order(std::size_t count) {
  order_.resize(weights_.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto before = [&](TokenId a, TokenId b) {
    const float x = weights_[static_cast<std::size_t>(a)];
    const float y = weights_[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto middle = order_.begin() + static_cast<std::ptrdiff_t>(count);
  if (count < order_.size()) std::nth_element(order_.begin(), middle, order_.end(), before);
  std::sort(order_.begin(), middle, before);
}

std::size_t Sampler::cut(const SamplingOptions& options, double sum) {
  const std::size_t all = weights_.size();
  const std::size_t most = options.top_k == 0 ? all : std::min(all, static_cast<std::size_t>(options.top_k));
  std::size_t ordered = most < all ? most : std::min(all, kOrderedFirst);
  for (;;) {
    order(ordered);
    const auto weight = [&](std::size_t i) { return weights_[static_cast<std::size_t>(order_[i])]; };
    double of_all = sum;
    if (most < all) {
      of_all = 0;
      for (std::size_t i = 0; i < most; ++i) of_all += weight(i);
    }
    double kept_sum = 0;
    std::size_t kept = 0;
    for (; kept < ordered; ++kept) {
      if (kept_sum >= options.top_p * of_all || weight(kept) < options.min_p * weight(0)) return kept;
      kept_sum += weight(kept);
    }
    if (ordered == most) return kept;
    ordered = std::min(most, kOrderedFactor * ordered);
  }
}

TokenId Sampler::draw(double left) const {
  std::size_t part = 0;
  for (; part + 1 < part_sums_.size() && left >= part_sums_[part]; ++part) left -= part_sums_[part];
  for (std::size_t i = part * kPartWeights; i < weights_.size(); ++i) {
    if (left < weights_[i]) return static_cast<TokenId>(i);
    left -= weights_[i];
  }
  // Rounding left a rest behind the last token: then it is the last one with any weight.
  std::size_t last = weights_.size() - 1;
  while (weights_[last] == 0) --last;
  return static_cast<TokenId>(last);
}

std::vector<TokenLogProb> Sampler::best(std::span<const float> logits, double temperature, double log_sum,
                                        std::size_t count) const {
  std::vector<TokenLogProb> result;
  for (std::size_t i = 0; i < count; ++i) {
    result.push_back({order_[i], log_prob(logits, order_[i], temperature, log_sum)});
  }
  return result;
}

float Sampler::log_prob(std::span<const float> logits, TokenId token, double temperature, double log_sum) const {
  const double logit = logits[static_cast<std::size_t>(token)];
  return static_cast<float>(std::min(0.0, (logit - static_cast<double>(greatest_)) / temperature - log_sum));
}

std::optional<SampledToken> Sampler::sample(std::span<float> logits, const SamplingOptions& options,
                                            std::span<const TokenId> seen, double uniform, std::size_t top) {
  if (options.repetition_penalty != 1) penalise(logits, options.repetition_penalty, seen, is_seen_);
  const bool greedy = options.temperature == 0;
  const double temperature = greedy ? 1 : options.temperature;
  const std::optional<double> all = weigh(logits, temperature);
  if (!all) return std::nullopt;
  SampledToken result;
  if (greedy) {
    result.token = static_cast<TokenId>(std::find(logits.begin(), logits.end(), greatest_) - logits.begin());
  } else if (options.top_k == 0 && options.top_p == 1 && options.min_p == 0) {
    result.token = draw(uniform * *all);
  } else {
    const std::size_t kept = cut(options, *all);
    kept_.assign(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(kept));
    std::sort(kept_.begin(), kept_.end());
    double sum = 0;
    for (const TokenId token : kept_) sum += weights_[static_cast<std::size_t>(token)];
    double left = uniform * sum;
    result.token = kept_.back();
    for (const TokenId token : kept_) {
      const double weight = weights_[static_cast<std::size_t>(token)];
      if (left < weight) {
        result.token = token;
        break;
      }
      left -= weight;
    }
  }
  const double log_sum = std::log(*all);
  result.log_prob = log_prob(logits, result.token, temperature, log_sum);
  if (top > 0) {
    const std::size_t count = std::min(top, weights_.size());
    order(count);
    result.top = best(logits, temperature, log_sum, count);
  }
  return result;
}

std::optional<SampledToken> Sampler::score(std::span<const float> logits, TokenId token, std::size_t top) {
  const std::optional<double> sum = weigh(logits, 1);
  if (!sum) return std::nullopt;
  SampledToken result;
  result.token = token;
  result.log_prob = log_prob(logits, token, 1, std::log(*sum));
  if (top > 0) {
    const std::size_t count = std::min(top, weights_.size());
    order(count);
    result.top = best(logits, 1, std::log(*sum), count);
  }
  return result;
}

}  // namespace weightcast
