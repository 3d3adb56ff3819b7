#include "trainer/model/layers/rope.h"

#include <torch/csrc/autograd/custom_function.h>

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

}  // namespace

Rotation rope_rotation(const Tensor& frequencies, double attention_factor, const Tensor& positions,
                       torch::ScalarType dtype) {
  const Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * frequencies;
  return {(angles.cos() * attention_factor).to(dtype), (angles.sin() * attention_factor).to(dtype)};
}

Tensor rotate(const Tensor& heads, const Rotation& rotation) {
  return Rotate::apply(heads, rotation.cosine.unsqueeze(-2), rotation.sine.unsqueeze(-2));
}

}  // namespace weightcast
