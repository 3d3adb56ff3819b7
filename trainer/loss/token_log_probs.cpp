#include "trainer/loss/token_log_probs.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

#include <algorithm>

#include "trainer/model/layers/products.h"

namespace weightcast {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

std::int64_t tokens_per_chunk(std::int64_t vocabulary, std::int64_t logit_bytes) {
  return std::max<std::int64_t>(1, logit_bytes / (vocabulary * std::int64_t{sizeof(float)}));
}

// Of a BF16 head, so much is widened to FP32 at a time.
constexpr std::int64_t kHeadBytes = std::int64_t{8} << 20;

/// hidden head^T in FP32. A product of BF16 matrices would round each logit to 8 bits, which the engine does not.
Tensor exact_logits(const Tensor& hidden, const Tensor& head) {
  if (head.scalar_type() == torch::kFloat) return at::mm(hidden, head.t());
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  // There the product of BF16 is summed in FP32, and may be kept so.
  if (hidden.is_cuda()) return at::mm(hidden, head.t(), torch::kFloat);
#endif
  const std::int64_t vocabulary = head.size(0);
  const std::int64_t part = std::max<std::int64_t>(1, kHeadBytes / (head.size(1) * std::int64_t{sizeof(float)}));
  const Tensor wide = hidden.to(torch::kFloat);
  Tensor logits = at::empty({hidden.size(0), vocabulary}, wide.options());
  for (std::int64_t first = 0; first < vocabulary; first += part) {
    const std::int64_t count = std::min(part, vocabulary - first);
    Tensor of_part = logits.narrow(1, first, count);
    at::mm_out(of_part, wide, head.narrow(0, first, count).to(torch::kFloat).t());
  }
  return logits;
}

/// FP32 [n, V], of the caller's own memory.
Tensor scaled_logits(const Tensor& hidden, const Tensor& head, double temperature) {
  Tensor logits = exact_logits(hidden, head);
  return temperature == 1 ? logits : logits.div_(temperature);
}

class TokenLogProbsFunction : public torch::autograd::Function<TokenLogProbsFunction> {
 public:
  static tensor_list forward(AutogradContext* context, const Tensor& hidden, const Tensor& head, const Tensor& targets,
                             double temperature, std::int64_t logit_bytes) {
    const std::int64_t tokens = hidden.size(0), chunk = tokens_per_chunk(head.size(0), logit_bytes);
    const auto options = hidden.options().dtype(torch::kFloat);
    const Tensor log_probs = at::empty({tokens}, options), entropy = at::empty({tokens}, options);
    const Tensor normaliser = at::empty({tokens}, options);
    for (std::int64_t first = 0; first < tokens; first += chunk) {
      const std::int64_t count = std::min(chunk, tokens - first);
      const Tensor given = targets.narrow(0, first, count);
      Tensor logits = scaled_logits(hidden.narrow(0, first, count), head, temperature);
      const Tensor chosen = logits.gather(1, given.clamp_min(0).unsqueeze(1)).squeeze(1);
      const Tensor sum = logits.logsumexp(1);
      normaliser.narrow(0, first, count).copy_(sum);
      // entropy = log Z - sum p * logit
      const Tensor probabilities = (logits - sum.unsqueeze(1)).exp_();
      const Tensor mean = probabilities.mul_(logits).sum(1);
      const Tensor missing = given < 0;
      log_probs.narrow(0, first, count).copy_((chosen - sum).masked_fill_(missing, 0));
      entropy.narrow(0, first, count).copy_((sum - mean).masked_fill_(missing, 0));
    }
    context->save_for_backward({hidden, head, targets, normaliser, entropy});
    context->saved_data["temperature"] = temperature;
    context->saved_data["logit_bytes"] = logit_bytes;
    context->set_materialize_grads(false);
    return {log_probs, entropy};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const tensor_list saved = context->get_saved_variables();
    const Tensor &hidden = saved[0], &head = saved[1], &targets = saved[2], &normaliser = saved[3], &entropy = saved[4];
    const double temperature = context->saved_data["temperature"].toDouble();
    const std::int64_t chunk = tokens_per_chunk(head.size(0), context->saved_data["logit_bytes"].toInt());
    const std::int64_t tokens = hidden.size(0);
    const bool wants_hidden = context->needs_input_grad(0), wants_head = context->needs_input_grad(1);
    const Tensor &of_log_probs = gradients[0], &of_entropy = gradients[1];
    if (!of_log_probs.defined() && !of_entropy.defined()) return {{}, {}, {}, {}, {}};

    Tensor of_hidden = wants_hidden ? at::empty_like(hidden) : Tensor();
    // Sums of many chunks lose what BF16 cannot hold.
    Tensor of_head = wants_head ? at::zeros(head.sizes(), head.options().dtype(torch::kFloat)) : Tensor();
    for (std::int64_t first = 0; first < tokens; first += chunk) {
      const std::int64_t count = std::min(chunk, tokens - first);
      const Tensor rows = hidden.narrow(0, first, count), given = targets.narrow(0, first, count);
      const Tensor present = (given >= 0).to(torch::kFloat);
      Tensor d = scaled_logits(rows, head, temperature).sub_(normaliser.narrow(0, first, count).unsqueeze(1));
      // d log p(target) / d logit_j = [j is the target] - p_j;  d H / d logit_j = -p_j (log p_j + H)
      const Tensor g = of_log_probs.defined() ? of_log_probs.narrow(0, first, count) * present : Tensor();
      if (of_entropy.defined()) {
        const Tensor h = (of_entropy.narrow(0, first, count) * present).unsqueeze(1);
        const Tensor probabilities = d.exp();
        d.add_(entropy.narrow(0, first, count).unsqueeze(1)).mul_(h);
        if (g.defined()) d.add_(g.unsqueeze(1));
        d.mul_(probabilities).neg_();
      } else {
        d.exp_().mul_(-g.unsqueeze(1));
      }
      if (g.defined()) d.scatter_add_(1, given.clamp_min(0).unsqueeze(1), g.unsqueeze(1));
      if (temperature != 1) d.div_(temperature);
      d = d.to(hidden.scalar_type());
      if (wants_hidden) of_hidden.narrow(0, first, count).copy_(product(d, head));
      if (!wants_head) continue;
      if (head.scalar_type() == torch::kFloat) {
        of_head.addmm_(d.t(), rows);
      } else {
        of_head.add_(product(d.t(), rows));
      }
    }
    if (wants_head) of_head = of_head.to(head.scalar_type());
    return {of_hidden, of_head, {}, {}, {}};
  }
};

}  // namespace

TokenLogProbs token_log_probs(const Tensor& hidden, const Tensor& head, const Tensor& targets, double temperature,
                              std::int64_t logit_bytes) {
  TORCH_CHECK(hidden.dim() == 2 && head.dim() == 2 && hidden.size(1) == head.size(1) && head.size(0) > 0,
              "token_log_probs: hidden ", hidden.sizes(), " and head ", head.sizes(), " are not [T, D] and [V, D]");
  TORCH_CHECK(targets.dim() == 1 && targets.size(0) == hidden.size(0) && targets.scalar_type() == torch::kLong,
              "token_log_probs: targets ", targets.sizes(), " are not one int64 per row of hidden ", hidden.sizes());
  TORCH_CHECK(hidden.scalar_type() == head.scalar_type() &&
                  (head.scalar_type() == torch::kFloat || head.scalar_type() == torch::kBFloat16),
              "token_log_probs: hidden is ", hidden.scalar_type(), " and head ", head.scalar_type(),
              ", not both FP32 or both BF16");
  TORCH_CHECK(temperature > 0, "token_log_probs: the temperature is ", temperature);
  const tensor_list result = TokenLogProbsFunction::apply(hidden, head, targets, temperature, logit_bytes);
  return {result[0], result[1]};
}

}  // namespace weightcast
