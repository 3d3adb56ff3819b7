#include "trainer/model/layers/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weightcast {
namespace {

/// The dimension whose wavelength makes `turns` turns over the pre-trained context.
double yarn_dimension(const RopeConfig& rope, std::int64_t head_dim, double turns) {
  return static_cast<double>(head_dim) *
         std::log(static_cast<double>(rope.original_max_position_embeddings) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

void stretch_by_yarn(const RopeConfig& rope, std::int64_t head_dim, std::vector<float>& frequencies) {
  double low = yarn_dimension(rope, head_dim, rope.beta_fast);
  double high = yarn_dimension(rope, head_dim, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] =
        static_cast<float>(frequencies[i] / rope.factor * interpolated + frequencies[i] * (1 - interpolated));
  }
}

void stretch_as_llama3(const RopeConfig& rope, std::vector<float>& frequencies) {
  const auto context = static_cast<double>(rope.original_max_position_embeddings);
  for (float& frequency : frequencies) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength > context / rope.low_freq_factor) {
      frequency = static_cast<float>(frequency / rope.factor);
    } else if (wavelength >= context / rope.high_freq_factor) {
      const double smooth =
          (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      frequency = static_cast<float>((1 - smooth) * frequency / rope.factor + smooth * frequency);
    }
  }
}

/// dynamic: the base grows with the sequence ("NTK").
double grown_theta(const RopeConfig& rope, std::int64_t head_dim, std::int64_t length) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const double stretch = rope.factor * std::max(1.0, static_cast<double>(length) / original) - (rope.factor - 1);
  const auto size = static_cast<double>(head_dim);
  return head_dim > 2 ? rope.theta * std::pow(stretch, size / (size - 2)) : rope.theta;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope, std::int64_t head_dim, std::int64_t length) {
  const double theta = rope.type == RopeType::kDynamic ? grown_theta(rope, head_dim, length) : rope.theta;
  std::vector<float> result;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    // In FP32, as transformers does.
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    result.push_back(1 / std::pow(static_cast<float>(theta), exponent));
  }
  switch (rope.type) {
    case RopeType::kDefault: break;
    case RopeType::kLinear:
      for (float& frequency : result) frequency = static_cast<float>(frequency / rope.factor);
      break;
    case RopeType::kYarn: stretch_by_yarn(rope, head_dim, result); break;
    case RopeType::kLlama3: stretch_as_llama3(rope, result); break;
    case RopeType::kDynamic: break;
    case RopeType::kLongrope: {
      const auto& factors = length > rope.original_max_position_embeddings ? rope.long_factor : rope.short_factor;
      for (std::size_t i = 0; i < result.size(); ++i) result[i] /= static_cast<float>(factors[i]);
      break;
    }
  }
  return result;
}

}  // namespace weightcast
