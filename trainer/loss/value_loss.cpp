#include "trainer/loss/value_loss.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace weightcast {

using torch::Tensor;

ValueHead ValueHead::zeros(std::int64_t width, torch::Device device) {
  const auto options = torch::TensorOptions().dtype(torch::kFloat).device(device);
  ValueHead head{torch::zeros({width}, options), torch::zeros({}, options)};
  head.weight.set_requires_grad(true);
  head.bias.set_requires_grad(true);
  return head;
}

Tensor ValueHead::operator()(const Tensor& hidden) const { return torch::mv(hidden.to(torch::kFloat), weight) + bias; }

Result<ValueLoss> value_loss(const Tensor& values, const Tensor& old_values, const Tensor& returns, const Tensor& mask,
                             double clip_range, LossAggMode mode, const LossCounts& counts) {
  for (const Tensor* other : {&old_values, &returns, &mask}) {
    if (values.dim() == 2 && values.numel() > 0 && other->sizes() == values.sizes()) continue;
    return fail(Errc::kInvalidArgument, Op::kVerify,
                fmt::format("value loss: shapes [{}] and [{}], where [sequences, tokens] is wanted alike",
                            fmt::join(values.sizes(), ", "), fmt::join(other->sizes(), ", ")));
  }
  const Tensor counted = mask.to(torch::kBool);
  const Tensor zero = torch::zeros({}, values.options());
  const auto masked = [&](const Tensor& tensor) { return torch::where(counted, tensor, zero); };
  const Tensor v = masked(values), old = masked(old_values.detach()), target = masked(returns.detach());
  const LossAggregate aggregate(counted, values.scalar_type(), mode, counts);
  const Tensor error = (v - target).square();
  if (clip_range < 0) return ValueLoss{aggregate(error) / 2, zero};
  const Tensor clipped = (torch::clamp(v, old - clip_range, old + clip_range) - target).square();
  return ValueLoss{aggregate(torch::maximum(error, clipped)) / 2,
                   aggregate.token_mean((clipped > error).to(values.scalar_type())).detach()};
}

}  // namespace weightcast
