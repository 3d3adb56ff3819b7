#include "trainer/learner/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weightcast {

SampledToken Sampler::sample(std::span<const float> logits, double temperature, double top_p, double uniform) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return {static_cast<std::int32_t>(best - logits.begin()), 0};

  const double most = *best;
  weights_.resize(logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    weights_[i] = std::exp((static_cast<double>(logits[i]) - most) / temperature);
    sum += weights_[i];
  }
  if (top_p < 1) {
    order_.resize(logits.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::int32_t a, std::int32_t b) { return weights_[a] > weights_[b]; });
    double kept = 0;
    for (const std::int32_t token : order_) {
      if (kept >= top_p * sum) {
        weights_[token] = 0;
      } else {
        kept += weights_[token];
      }
    }
    sum = kept;
  }
  double left = uniform * sum;
  // Rounding may leave a rest behind the last token; then it is the last one with any probability.
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] == 0) continue;
    chosen = i;
    if (left < weights_[i]) break;
    left -= weights_[i];
  }
  const auto log_prob = static_cast<float>(std::log(weights_[chosen] / sum));
  return {static_cast<std::int32_t>(chosen), std::min(log_prob, 0.0F)};
}

}  // namespace weightcast
