#include "trainer/loss/policy_loss.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/loss/aggregate.h"

namespace weightcast {
namespace {

using torch::Tensor;

// exp(20) is 5e8: far beyond any bound on a ratio, and finite in FP32 after a few products.
constexpr double kLogRatioMax = 20;

Error refuse_loss(std::string why) { return fail(Errc::kInvalidArgument, Op::kVerify, "loss: " + std::move(why)); }

std::string shape_text(const Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")); }

Status check_matrix(const char* name, const Tensor& tensor, const Tensor& like, const char* why_needed) {
  if (!tensor.defined()) {
    return why_needed == nullptr ? Status() : Status(refuse_loss(fmt::format("{} needs {}", why_needed, name)));
  }
  if (tensor.sizes() == like.sizes()) return {};
  return refuse_loss(fmt::format("{} has shape {}, log_probs {}", name, shape_text(tensor), shape_text(like)));
}

Tensor exp_ratio(const Tensor& log_ratio) { return log_ratio.clamp(-kLogRatioMax, kLogRatioMax).exp(); }

/// A sequence's ratio stands in all of its slots.
Tensor at_level(const Tensor& log_ratio, RatioLevel level) {
  return level == RatioLevel::kToken ? log_ratio : log_ratio.sum(-1, true).expand_as(log_ratio);
}

Tensor bounded(const Tensor& ratio, std::optional<double> low, std::optional<double> high) {
  if (!low && !high) return ratio;
  const auto scalar = [](std::optional<double> bound) {
    return bound ? c10::optional<at::Scalar>(*bound) : c10::optional<at::Scalar>();
  };
  return ratio.clamp(scalar(low), scalar(high));
}

/// One call's inputs, with zeros where the mask leaves out, so that nothing that stands there reaches a result or a
/// gradient.
class Terms {
 public:
  Terms(const PolicyLossOptions& options, const PolicyLossInput& input)
      : options_(options),
        mask_(input.response_mask.defined() ? input.response_mask.to(torch::kBool)
                                            : torch::ones_like(input.log_probs, torch::kBool)),
        aggregate_(mask_, input.log_probs.scalar_type(), options.loss_agg_mode,
                   {options.batch_tokens, options.batch_sequences, options.horizon}),
        weights_(aggregate_.weights()) {
    const Tensor zero = torch::zeros({}, input.log_probs.options());
    const auto masked = [&](const Tensor& tensor) {
      return tensor.defined() ? torch::where(mask_, tensor.to(zero.scalar_type()), zero) : Tensor();
    };
    const auto constant = [&](const Tensor& tensor) { return tensor.defined() ? masked(tensor.detach()) : Tensor(); };
    log_probs_ = masked(input.log_probs);
    old_ = constant(input.old_log_probs);
    rollout_ = input.rollout_log_probs.defined() ? constant(input.rollout_log_probs) : old_;
    ref_ = constant(input.ref_log_probs);
    entropy_ = masked(input.entropy);
    advantages_ = constant(input.advantages);
    if (input.scores.defined()) positive_ = (input.scores.detach() > 0).unsqueeze(-1).expand_as(mask_);
  }

  PolicyLoss compute() {
    PolicyLoss result;
    const Tensor weight = outer_weight(result.metrics);
    Tensor policy = policy_term(result.metrics);
    if (weight.defined()) policy = policy * weight;
    result.per_token = policy;
    add(result.metrics, "actor/pg_loss", aggregate_(policy));
    if (ref_.defined()) {
      const Tensor kl = kl_estimate(options_.kl_loss_type, log_probs_, ref_);
      add(result.metrics, "actor/kl_loss", aggregate_(kl));
      if (options_.kl_loss_coef != 0) {
        // (24)-(25) of ECHO-2 weigh the surrogate together with its KL. verl and TRL leave KL outside of theirs.
        const bool is_inside = options_.pg_variant == PgVariant::kEcho2;
        result.per_token = result.per_token + options_.kl_loss_coef * (is_inside ? weight * kl : kl);
      }
    }
    if (entropy_.defined()) {
      add(result.metrics, "actor/entropy", aggregate_(entropy_));
      if (options_.entropy_coeff != 0) result.per_token = result.per_token - options_.entropy_coeff * entropy_;
    }
    result.loss = aggregate_(result.per_token);
    result.per_token = torch::where(mask_, result.per_token, torch::zeros({}, result.per_token.options()));  // not -0
    return result;
  }

 private:
  static void add(std::vector<PolicyLossMetric>& metrics, std::string_view name, const Tensor& value) {
    metrics.push_back({name, value.detach()});
  }

  [[nodiscard]] Tensor token_mean(const Tensor& values) const { return aggregate_.token_mean(values); }

  [[nodiscard]] Tensor policy_term(std::vector<PolicyLossMetric>& metrics) const {
    if (old_.defined()) {
      const Tensor log_ratio = (log_probs_ - old_).clamp(-kLogRatioMax, kLogRatioMax);
      add(metrics, "actor/ppo_kl", token_mean(-log_ratio));
    }
    switch (options_.pg_variant) {
      case PgVariant::kPpo:
      case PgVariant::kDecoupledPpo: return clipped_surrogate(old_, options_.clip_ratio_c, metrics);
      case PgVariant::kEcho2: return clipped_surrogate(rollout_, {}, metrics);
      case PgVariant::kReinforce: return -advantages_ * log_probs_;
      case PgVariant::kTis:
        return weighted_log_probs(sampler_ratio(), options_.ratio_low.value_or(0), options_.ratio_high.value_or(1),
                                  metrics);
      case PgVariant::kCispo: {
        const auto& low = options_.clip_ratio_low;
        const auto& high = options_.clip_ratio_high;
        return weighted_log_probs(sampler_ratio(), low ? std::optional(1 - *low) : std::nullopt,
                                  high ? std::optional(1 + *high) : std::nullopt, metrics);
      }
      case PgVariant::kTopr:
      case PgVariant::kWeightedTopr: {
        const Tensor negative = weighted_log_probs(sampler_ratio(), options_.ratio_low.value_or(0),
                                                   options_.ratio_high.value_or(1), metrics, ~positive_);
        const Tensor positive = -advantages_ * log_probs_;
        if (options_.pg_variant == PgVariant::kTopr) return torch::where(positive_, positive, negative);
        return torch::where(positive_, options_.topr_weight_positive * positive,
                            options_.topr_weight_negative * negative);
      }
    }
    WC_CHECK(false);
  }

  [[nodiscard]] Tensor sampler_ratio() const {
    return exp_ratio(at_level((log_probs_ - rollout_).detach(), options_.ratio_level));
  }

  /// -clip(ratio, low, high) A log_probs. `applies`: to which slots, for the share that is clipped.
  [[nodiscard]] Tensor weighted_log_probs(const Tensor& ratio, std::optional<double> low, std::optional<double> high,
                                          std::vector<PolicyLossMetric>& metrics, const Tensor& applies = {}) const {
    const Tensor weight = bounded(ratio, low, high);
    Tensor clipped = weight != ratio;
    if (applies.defined()) clipped = clipped & applies;
    add(metrics, "actor/pg_clipfrac", token_mean(clipped.to(weights_.scalar_type())));
    return -weight * advantages_ * log_probs_;
  }

  /// PPO's, with the ratio against `base`.
  [[nodiscard]] Tensor clipped_surrogate(const Tensor& base, std::optional<double> dual_clip,
                                         std::vector<PolicyLossMetric>& metrics) const {
    const auto& low = options_.clip_ratio_low;
    const auto& high = options_.clip_ratio_high;
    const Tensor ratio = exp_ratio(log_probs_ - base);
    const Tensor plain = -advantages_ * ratio;
    const Tensor clipped = -advantages_ * bounded(ratio, low ? std::optional(1 - *low) : std::nullopt,
                                                  high ? std::optional(1 + *high) : std::nullopt);
    Tensor loss = torch::maximum(plain, clipped);
    add(metrics, "actor/pg_clipfrac", token_mean((clipped > plain).to(weights_.scalar_type())));
    if (dual_clip) {
      const Tensor most = -advantages_ * *dual_clip;
      const Tensor below = advantages_ < 0;
      add(metrics, "actor/pg_clipfrac_lower", token_mean(((loss > most) & below).to(weights_.scalar_type())));
      loss = torch::where(below, torch::minimum(most, loss), loss);
    }
    return loss;
  }

  /// What the policy's term is multiplied with, without gradient; undefined if with nothing. Measures the mismatch of
  /// sampler and learner in any case.
  [[nodiscard]] Tensor outer_weight(std::vector<PolicyLossMetric>& metrics) const {
    if (!rollout_.defined()) return {};
    const Tensor learner = old_.defined() ? old_ : log_probs_.detach();
    const Tensor log_ratio = learner - rollout_;
    const Tensor weight = bounded(exp_ratio(at_level(log_ratio, options_.tis_level)), {}, options_.tis_cap);
    const Tensor safe = log_ratio.clamp(-kLogRatioMax, kLogRatioMax);
    add(metrics, "rollout_corr/kl", token_mean(-log_ratio));
    add(metrics, "rollout_corr/k3_kl", token_mean(safe.exp() - 1 - safe));
    add(metrics, "rollout_corr/rollout_is_mean", token_mean(weight));
    add(metrics, "rollout_corr/rollout_is_max", (weight * weights_).max());
    const Tensor sum = (weight * weights_).sum(), squares = (weight * weight * weights_).sum();
    // (sum w)^2 / (n sum w^2): 1 for equal weights.
    const Tensor size = sum * sum / (weights_.sum() * squares).clamp_min(1e-30);
    add(metrics, "rollout_corr/rollout_is_eff_sample_size", size);
    if (options_.pg_variant == PgVariant::kEcho2) {
      return bounded(exp_ratio((log_probs_ - rollout_).detach()), {}, options_.ratio_high);
    }
    return options_.tis_cap || options_.pg_variant == PgVariant::kDecoupledPpo ? weight : Tensor();
  }

  const PolicyLossOptions& options_;
  Tensor mask_;  // which slots count
  LossAggregate aggregate_;
  const Tensor& weights_;  // the mask as 1 and 0
  Tensor log_probs_, old_, rollout_, ref_, entropy_, advantages_, positive_;
};

}  // namespace

Result<PolicyLoss> policy_loss(const PolicyLossOptions& options, const PolicyLossInput& input) {
  WC_TRY(validate(options));
  const Tensor& log_probs = input.log_probs;
  if (!log_probs.defined()) return refuse_loss("log_probs are missing");
  if (log_probs.dim() != 2 || log_probs.numel() == 0) {
    return refuse_loss(fmt::format("log_probs have shape {}: [sequences, tokens] is wanted, with at least one of each",
                                   shape_text(log_probs)));
  }
  const std::string variant(to_string(options.pg_variant));
  const bool lacks_rollout = !input.rollout_log_probs.defined() && !input.old_log_probs.defined();
  const auto needed = [&](bool is_needed) { return is_needed ? variant.c_str() : nullptr; };
  WC_TRY(check_matrix("old_log_probs", input.old_log_probs, log_probs, needed(options.reads_old())));
  WC_TRY(check_matrix(
      "rollout_log_probs (or old_log_probs)", input.rollout_log_probs, log_probs,
      lacks_rollout && options.reads_rollout() ? (options.tis_cap ? "tis_cap" : variant.c_str()) : nullptr));
  WC_TRY(check_matrix("ref_log_probs", input.ref_log_probs, log_probs,
                      options.kl_loss_coef != 0 ? "kl_loss_coef" : nullptr));
  WC_TRY(check_matrix("entropy", input.entropy, log_probs, options.entropy_coeff != 0 ? "entropy_coeff" : nullptr));
  WC_TRY(check_matrix("advantages", input.advantages, log_probs, variant.c_str()));
  WC_TRY(check_matrix("response_mask", input.response_mask, log_probs, nullptr));
  if (options.reads_scores() && !input.scores.defined()) return refuse_loss(variant + " needs scores");
  if (input.scores.defined() && (input.scores.dim() != 1 || input.scores.size(0) != log_probs.size(0))) {
    return refuse_loss(fmt::format("scores have shape {}: one per sequence is wanted, [{}]", shape_text(input.scores),
                                   log_probs.size(0)));
  }
  return Terms(options, input).compute();
}

Tensor kl_estimate(KlType type, const Tensor& log_probs, const Tensor& ref_log_probs) {
  const Tensor d = log_probs - ref_log_probs;
  switch (type) {
    case KlType::kK1: return d;
    case KlType::kK2: return d * d / 2;
    case KlType::kK3: return exp_ratio(-d) - 1 + d;
  }
  WC_CHECK(false);
}

Tensor kl_penalty(KlType type, double coef, const Tensor& log_probs, const Tensor& ref_log_probs,
                  const Tensor& response_mask) {
  const Tensor zero = torch::zeros({}, log_probs.options());
  const Tensor mask = response_mask.to(torch::kBool);
  return coef * kl_estimate(type, torch::where(mask, log_probs.detach(), zero),
                            torch::where(mask, ref_log_probs.detach(), zero));
}

}  // namespace weightcast
