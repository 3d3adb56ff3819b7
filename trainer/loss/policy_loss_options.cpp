#include "trainer/loss/policy_loss_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace weightcast {
namespace {

Status check(bool fine, std::string_view name, double value, std::string_view range) {
  if (fine) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("{} is {}: it is {}", name, value, range));
}

/// Whether the variant has a ratio against the policy that sampled, which tis_cap does not bound.
bool corrects_by_itself(PgVariant variant) {
  return variant != PgVariant::kPpo && variant != PgVariant::kDecoupledPpo && variant != PgVariant::kReinforce;
}

}  // namespace

Result<PgVariant> parse_pg_variant(std::string_view text) {
  if (text == "dpo") {
    return fail(Errc::kUnsupported, Op::kConfigure,
                fmt::format("pg_variant dpo: a loss over pairs of preferred and rejected responses, not over rollouts "
                            "with rewards; the ones here are {}",
                            fmt::join(kWords<PgVariant>, ", ")));
  }
  return parse_word<PgVariant>("pg_variant", text);
}

bool PolicyLossOptions::reads_old() const {
  return pg_variant == PgVariant::kPpo || pg_variant == PgVariant::kDecoupledPpo;
}

bool PolicyLossOptions::reads_rollout() const {
  return tis_cap || (pg_variant != PgVariant::kPpo && pg_variant != PgVariant::kReinforce);
}

bool PolicyLossOptions::reads_scores() const {
  return pg_variant == PgVariant::kTopr || pg_variant == PgVariant::kWeightedTopr;
}

Status validate(const PolicyLossOptions& options) {
  const auto at_least_0 = [](double value) { return value >= 0 && std::isfinite(value); };
  const auto at_least_1 = [](double value) { return value >= 1 && std::isfinite(value); };
  if (const auto& low = options.clip_ratio_low) {
    WC_TRY(check(at_least_0(*low) && *low <= 1, "clip_ratio_low", *low, "in [0, 1]"));
  }
  if (const auto& high = options.clip_ratio_high) {
    WC_TRY(check(at_least_0(*high), "clip_ratio_high", *high, "at least 0"));
  }
  if (const auto& c = options.clip_ratio_c) {
    WC_TRY(check(*c > 1 && std::isfinite(*c), "clip_ratio_c", *c, "above 1"));
  }
  if (const auto& low = options.ratio_low) WC_TRY(check(at_least_0(*low), "ratio_low", *low, "at least 0"));
  if (const auto& high = options.ratio_high) {
    const double low = options.ratio_low.value_or(0);
    WC_TRY(check(at_least_0(*high) && *high >= low, "ratio_high", *high, "at least ratio_low"));
  } else if (options.ratio_low && (options.pg_variant == PgVariant::kTis || options.reads_scores())) {
    WC_TRY(check(*options.ratio_low <= 1, "ratio_low", *options.ratio_low, "at most ratio_high, which is 1"));
  }
  WC_TRY(
      check(at_least_0(options.topr_weight_positive), "topr_weights[0]", options.topr_weight_positive, "at least 0"));
  WC_TRY(
      check(at_least_0(options.topr_weight_negative), "topr_weights[1]", options.topr_weight_negative, "at least 0"));
  if (const auto& cap = options.tis_cap) {
    WC_TRY(check(*cap > 0 && std::isfinite(*cap), "tis_cap", *cap, "above 0"));
    if (corrects_by_itself(options.pg_variant)) {
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  fmt::format("tis_cap is {}, and pg_variant '{}' weighs each token against the policy that sampled it "
                              "already: both would count that mismatch twice; leave tis_cap off, or take ppo, "
                              "decoupled_ppo or reinforce",
                              *cap, to_string(options.pg_variant)));
    }
  }
  WC_TRY(check(at_least_0(options.kl_loss_coef), "kl_loss_coef", options.kl_loss_coef, "at least 0"));
  WC_TRY(check(std::isfinite(options.entropy_coeff), "entropy_coeff", options.entropy_coeff, "finite"));
  if (const auto& n = options.batch_tokens) WC_TRY(check(at_least_1(*n), "batch_tokens", *n, "at least 1"));
  if (const auto& n = options.batch_sequences) WC_TRY(check(at_least_1(*n), "batch_sequences", *n, "at least 1"));
  if (const auto& n = options.horizon) WC_TRY(check(*n > 0 && std::isfinite(*n), "horizon", *n, "above 0"));
  return {};
}

}  // namespace weightcast
