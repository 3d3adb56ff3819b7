#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/settings/words.h"

namespace weightcast {

/// The term of one token, negated: a loss. A: its advantage. s = exp(log_probs - old_log_probs), against the proximal
/// policy at the step's start; r = exp(log_probs - rollout_log_probs), against the policy that sampled;
/// w = exp(old_log_probs - rollout_log_probs), between the two. sg: without gradient. Every log ratio is clamped to
/// +-20 before exp.
///
/// Sampler and learner differ: other weights, other kernels. Each variant either corrects that once, or leaves it to
/// tis_cap (Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025):
///
/// | variant | corrected by | tis_cap | source |
/// |---|---|---|---|
/// | ppo | nothing | adds the weight sg(min(w, tis_cap)) | arXiv 1707.06347; dual clip 1912.09729 |
/// | decoupled_ppo | sg(w) | bounds w: sg(min(w, tis_cap)) | arXiv 2110.00641; AReaL 2505.24298 |
/// | tis | sg(clip(r)) | refused | arXiv 2510.11345 |
/// | cispo | sg(clip(r)) | refused | arXiv 2506.13585 |
/// | topr, weighted_topr | sg(clip(r)) of negatives | refused | arXiv 2503.14286; 2510.11345 |
/// | reinforce | nothing | adds the weight, as for ppo | Williams 1992 |
/// | echo2 | sg(min(r, ratio_high)), and r in the surrogate | refused | arXiv 2602.02192, (24)-(25) |
enum class PgVariant {
  kPpo,           ///< max(-s A, -clip(s, 1 - low, 1 + high) A); for A < 0 at most -A c (dual clip)
  kDecoupledPpo,  ///< sg(w) times ppo
  kTis,           ///< -sg(clip(r, ratio_low, ratio_high)) A log_probs
  kCispo,         ///< -sg(clip(r, 1 - low, 1 + high)) A log_probs
  kTopr,          ///< score > 0: -A log_probs; otherwise as tis
  kWeightedTopr,  ///< topr, its two halves times topr_weights
  kReinforce,     ///< -A log_probs
  kEcho2,         ///< sg(min(r, ratio_high)) times the sum of ppo's clipped surrogate with r in place of s, and KL
};

/// How the terms of tokens become one number. Sequences without a token do not count.
enum class LossAggMode {
  kTokenMean,            ///< sum / tokens
  kSeqMeanTokenSum,      ///< mean over sequences of their sums
  kSeqMeanTokenMean,     ///< mean over sequences of their means
  kSeqMeanTokenSumNorm,  ///< as kSeqMeanTokenSum, over the horizon
};

/// With d = log_probs - ref_log_probs.
enum class KlType {
  kK1,  ///< d
  kK2,  ///< d^2 / 2
  kK3,  ///< exp(-d) - 1 + d
};

/// Over what a ratio is taken.
enum class RatioLevel {
  kToken,
  kSequence,  ///< the product over the sequence's tokens
};

constexpr Words<8> words_of(PgVariant) {
  return {"ppo", "decoupled_ppo", "tis", "cispo", "topr", "weighted_topr", "reinforce", "echo2"};
}
constexpr Words<4> words_of(LossAggMode) {
  return {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"};
}
constexpr Words<3> words_of(KlType) { return {"k1", "k2", "k3"}; }
constexpr Words<2> words_of(RatioLevel) { return {"token", "sequence"}; }

/// Errors: kInvalidArgument, with the nearest name; kUnsupported: dpo.
[[nodiscard]] Result<PgVariant> parse_pg_variant(std::string_view text);

/// What is not set is off.
struct PolicyLossOptions {
  PgVariant pg_variant = PgVariant::kPpo;
  std::optional<double> clip_ratio_low = {};    ///< in [0, 1]; ppo, decoupled_ppo, cispo, echo2
  std::optional<double> clip_ratio_high = {};   ///< at least 0; the same ones
  std::optional<double> clip_ratio_c = {};      ///< above 1; ppo, decoupled_ppo
  std::optional<double> ratio_low = {};         ///< tis, topr, weighted_topr: 0 if not set
  std::optional<double> ratio_high = {};        ///< tis, topr, weighted_topr: 1 if not set; echo2's C
  RatioLevel ratio_level = RatioLevel::kToken;  ///< of r in tis, cispo, topr, weighted_topr
  double topr_weight_positive = 1;              ///< weighted_topr
  double topr_weight_negative = 1;
  /// Above 0: the bound of w; see PgVariant. Where there are no old_log_probs, log_probs stand for them in w.
  std::optional<double> tis_cap = {};
  RatioLevel tis_level = RatioLevel::kToken;  ///< of w
  LossAggMode loss_agg_mode = LossAggMode::kTokenMean;
  KlType kl_loss_type = KlType::kK3;
  double kl_loss_coef = 0;   ///< adds coef * KL against ref_log_probs, outside of w; for echo2 inside of its weight
  double entropy_coeff = 0;  ///< subtracts coeff * entropy

  /// A part of a batch (a micro-batch) is divided by the counts of the whole, so that the parts' losses and gradients
  /// add up to the batch's. Not set: the counts of what is given.
  std::optional<double> batch_tokens = {};     ///< masked in, over all sequences
  std::optional<double> batch_sequences = {};  ///< with at least one such token
  std::optional<double> horizon = {};          ///< kSeqMeanTokenSumNorm: not set: the columns given

  /// Which of the optional inputs of policy_loss() are read.
  [[nodiscard]] bool reads_old() const;
  [[nodiscard]] bool reads_rollout() const;
  [[nodiscard]] bool reads_scores() const;
};

/// Errors: kInvalidArgument: which option is out of range, and its range; tis_cap with a variant that corrects the
/// mismatch of sampler and learner itself, which would count it twice.
[[nodiscard]] Status validate(const PolicyLossOptions& options);

}  // namespace weightcast
