#include "trainer/model/layers/layer_functions.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace weightcast {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, double eps) {
    const Tensor wide = x.to(at::kFloat);
    const Tensor scale = wide.square().mean(-1, true).add_(eps).rsqrt_();
    context->save_for_backward({x, weight, scale});
    return (wide * scale).to(x.scalar_type()) * weight;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor normal = saved[0].to(at::kFloat) * saved[2];
    const Tensor gradient = gradients[0].to(at::kFloat);
    Tensor x_gradient;
    Tensor weight_gradient;
    if (context->needs_input_grad(1)) {
      weight_gradient = (gradient * normal).reshape({-1, normal.size(-1)}).sum(0).to(saved[1].scalar_type());
    }
    if (context->needs_input_grad(0)) {
      const Tensor scaled = gradient * saved[1];
      const Tensor along = (scaled * normal).mean(-1, true);
      x_gradient = (scaled - normal * along).mul_(saved[2]).to(saved[0].scalar_type());
    }
    return {x_gradient, weight_gradient, Tensor()};
  }
};

struct SwiGlu : torch::autograd::Function<SwiGlu> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up) {
    context->save_for_backward({gate, up});
    return at::silu(gate).mul_(up);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    return {at::silu_backward(gradients[0] * saved[1], saved[0]), at::silu(saved[0]).mul_(gradients[0])};
  }
};

Tensor sum_of_copies(const Tensor& rows, std::int64_t copies) {
  if (copies == 1) return rows;
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape.insert(shape.begin() + 1, copies);
  shape[0] /= copies;
  return rows.view(shape).sum(1);
}

// The gradient of index_select adds row by row. Here each row's places are known, so it is another index_select.
struct Reorder : torch::autograd::Function<Reorder> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& from, const Tensor& to,
                        std::int64_t copies) {
    context->saved_data["to"] = to;
    context->saved_data["copies"] = copies;
    return x.index_select(0, from);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor rows = gradients[0].index_select(0, context->saved_data["to"].toTensor());
    return {sum_of_copies(rows, context->saved_data["copies"].toInt()), Tensor(), Tensor(), Tensor()};
  }
};

struct Restore : torch::autograd::Function<Restore> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& to) {
    context->saved_data["to"] = to;
    context->saved_data["rows"] = x.size(0);
    return x.index_select(0, to);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    std::vector<std::int64_t> shape = gradients[0].sizes().vec();
    shape[0] = context->saved_data["rows"].toInt();
    Tensor result = at::zeros(shape, gradients[0].options());
    result.index_copy_(0, context->saved_data["to"].toTensor(), gradients[0]);
    return {result, Tensor()};
  }
};

/// The backward pass of recomputed() takes this beside `x`.
struct RecomputedLayer : torch::CustomClassHolder {
  RecomputedLayer(std::function<Tensor(const Tensor&)> function, std::vector<Tensor> used)
      : layer(std::move(function)), parameters(std::move(used)) {}
  const std::function<Tensor(const Tensor&)> layer;
  const std::vector<Tensor> parameters;
};

struct Recompute : torch::autograd::Function<Recompute> {
  /// The parameters are arguments so that autograd asks for their gradients.
  static Tensor forward(AutogradContext* context, const c10::intrusive_ptr<RecomputedLayer>& of, const Tensor& x,
                        at::TensorList /*parameters*/) {
    context->saved_data["layer"] = at::IValue::make_capsule(of);
    context->save_for_backward({x});
    return of->layer(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["layer"].toCapsule();
    const auto& of = static_cast<const RecomputedLayer&>(*capsule);
    const at::AutoGradMode with_gradients(true);
    const Tensor input = context->get_saved_variables()[0].detach();
    std::vector<Tensor> inputs;
    std::vector<std::size_t> places;  // of the inputs among forward()'s arguments, of which the first is no tensor
    input.set_requires_grad(context->needs_input_grad(0));
    if (input.requires_grad()) {
      inputs.push_back(input);
      places.push_back(1);
    }
    for (std::size_t i = 0; i < of.parameters.size(); ++i) {
      if (!context->needs_input_grad(i + 1)) continue;
      inputs.push_back(of.parameters[i]);
      places.push_back(i + 2);
    }
    const Tensor output = of.layer(input);
    // A parameter may be unused: an expert that no token chose.
    const variable_list found = torch::autograd::grad({output}, inputs, {gradients[0]}, false, false, true);
    variable_list result(of.parameters.size() + 2);
    for (std::size_t i = 0; i < found.size(); ++i) result[places[i]] = found[i];
    return result;
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) { return RmsNorm::apply(x, weight, eps); }

Tensor swiglu(const Tensor& gate, const Tensor& up) { return SwiGlu::apply(gate, up); }

Tensor reorder(const Tensor& x, const RowOrder& order) { return Reorder::apply(x, order.from, order.to, order.copies); }

Tensor restore(const Tensor& x, const RowOrder& order) { return Restore::apply(x, order.to); }

Tensor recomputed(const std::function<Tensor(const Tensor&)>& layer, const Tensor& x,
                  const std::vector<Tensor>& parameters) {
  return Recompute::apply(c10::make_intrusive<RecomputedLayer>(layer, parameters), x, at::TensorList(parameters));
}

}  // namespace weightcast
