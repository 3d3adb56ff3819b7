#include "trainer/model/layers/products.h"

#include <torch/csrc/autograd/custom_function.h>

#include "base/digest/instruction_set.h"

namespace weightcast {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Whether LibTorch's oneDNN takes BF16 on this processor: it asks for AVX-512 BW, DQ and VL.
bool has_bf16_products() {
#if defined(__x86_64__)
  return instruction_set() >= InstructionSet::kAvx512;
#else
  return true;
#endif
}

bool is_widened(const Tensor& x) {
  static const bool widens = !has_bf16_products();
  return widens && x.is_cpu() && x.scalar_type() == at::kBFloat16;
}

Tensor wide(const Tensor& x) { return x.to(at::kFloat); }

/// [..., n] as [rows, n].
Tensor rows_of(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// Keeps its operands as they are, and widens them again in the backward pass.
struct WideLinear : torch::autograd::Function<WideLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const c10::optional<Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["has_bias"] = bias.has_value();
    return at::linear(wide(x), wide(weight), bias ? wide(*bias) : Tensor()).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    const Tensor of_result = wide(rows_of(gradients[0]));
    Tensor of_x, of_weight, of_bias;
    if (context->needs_input_grad(0)) of_x = at::mm(of_result, wide(weight)).to(x.scalar_type()).view(x.sizes());
    if (context->needs_input_grad(1)) of_weight = at::mm(of_result.t(), wide(rows_of(x))).to(weight.scalar_type());
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      of_bias = of_result.sum(0).to(weight.scalar_type());
    }
    return {of_x, of_weight, of_bias};
  }
};

}  // namespace

Tensor linear_product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!is_widened(x)) return at::linear(x, weight, bias);
  return WideLinear::apply(x, weight, bias.defined() ? c10::optional<Tensor>(bias) : c10::nullopt);
}

Tensor product(const Tensor& a, const Tensor& b) {
  return is_widened(a) ? at::matmul(wide(a), wide(b)).to(a.scalar_type()) : at::matmul(a, b);
}

}  // namespace weightcast
