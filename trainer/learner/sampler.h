#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weightcast {

struct SampledToken {
  std::int32_t token = 0;
  float log_prob = 0;  ///< natural logarithm, of the distribution that was sampled from; at most 0
};

/// Draws tokens from logits. Keeps its memory between calls. One thread.
class Sampler {
 public:
  /// The token at `uniform`, in [0, 1), of softmax(logits / temperature), cut to the most probable tokens that together
  /// have at least `top_p`, and scaled to a sum of 1. Temperature 0 takes the most probable token, whose
  /// log-probability is then 0. Ties go to the smaller id, so that the result is the same on every machine with the
  /// same logits.
  [[nodiscard]] SampledToken sample(std::span<const float> logits, double temperature, double top_p, double uniform);

 private:
  std::vector<double> weights_;
  std::vector<std::int32_t> order_;
};

}  // namespace weightcast
