#include "model/rope.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weightcast {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor rotate_halves(const Tensor& heads, const Tensor& cosine, const Tensor& sine) {
  const std::int64_t half = heads.size(-1) / 2;
  const Tensor first = heads.narrow(-1, 0, half);
  const Tensor second = heads.narrow(-1, half, half);
  const Tensor result = at::empty(heads.sizes(), heads.options());
  Tensor first_result = result.narrow(-1, 0, half);
  Tensor second_result = result.narrow(-1, half, half);
  at::mul_out(first_result, first, cosine).sub_(second * sine);
  at::mul_out(second_result, second, cosine).add_(first * sine);
  return result;
}

// The transpose of a rotation is the rotation back. Autograd's own would keep both halves and pad each one's gradient.
struct Rotate : torch::autograd::Function<Rotate> {
  static Tensor forward(AutogradContext* context, const Tensor& heads, const Tensor& cosine, const Tensor& sine) {
    context->saved_data["cosine"] = cosine;
    context->saved_data["sine"] = sine;
    return rotate_halves(heads, cosine, sine);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor cosine = context->saved_data["cosine"].toTensor();
    const Tensor sine = context->saved_data["sine"].toTensor();
    return {rotate_halves(gradients[0], cosine, sine.neg()), Tensor(), Tensor()};
  }
};

/// The dimension whose wavelength makes `turns` turns over the pre-trained context.
double yarn_dimension(const RopeConfig& rope, std::int64_t head_dim, double turns) {
  return static_cast<double>(head_dim) *
         std::log(static_cast<double>(rope.original_max_position_embeddings) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

Tensor yarn_frequencies(const RopeConfig& rope, std::int64_t head_dim, const Tensor& period) {
  double low = yarn_dimension(rope, head_dim, rope.beta_fast);
  double high = yarn_dimension(rope, head_dim, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;
  const Tensor interpolated =
      at::clamp((at::arange(head_dim / 2, at::TensorOptions(at::kFloat)) - low) / (high - low), 0, 1);
  return 1 / (rope.factor * period) * interpolated + 1 / period * (1 - interpolated);
}

Tensor llama3_frequencies(const RopeConfig& rope, const Tensor& frequency) {
  const auto context = static_cast<double>(rope.original_max_position_embeddings);
  const Tensor wavelength = 2 * std::numbers::pi / frequency;
  const Tensor smooth = (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  const Tensor between = (1 - smooth) * frequency / rope.factor + smooth * frequency;
  const Tensor slow = wavelength > context / rope.low_freq_factor;
  const Tensor fast = wavelength < context / rope.high_freq_factor;
  return at::where(slow, frequency / rope.factor, at::where(fast, frequency, between));
}

}  // namespace

Tensor rope_frequencies(const RopeConfig& rope, std::int64_t head_dim) {
  const Tensor exponent = at::arange(0, head_dim, 2, at::TensorOptions(at::kFloat)) / static_cast<double>(head_dim);
  const Tensor period = at::pow(rope.theta, exponent);
  switch (rope.type) {
    case RopeType::kDefault: break;
    case RopeType::kLinear: return 1 / period / rope.factor;
    case RopeType::kYarn: return yarn_frequencies(rope, head_dim, period);
    case RopeType::kLlama3: return llama3_frequencies(rope, 1 / period);
  }
  return 1 / period;
}

Rotation rope_rotation(const Tensor& frequencies, double attention_factor, const Tensor& positions,
                       torch::ScalarType dtype) {
  const Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * frequencies;
  return {(angles.cos() * attention_factor).to(dtype), (angles.sin() * attention_factor).to(dtype)};
}

Tensor rotate(const Tensor& heads, const Rotation& rotation) {
  return Rotate::apply(heads, rotation.cosine.unsqueeze(-2), rotation.sine.unsqueeze(-2));
}

}  // namespace weightcast
