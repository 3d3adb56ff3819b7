#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "trainer/model/tokenizer/byte_pair_encoder.h"

namespace weightcast {

/// How a token is drawn from logits. The parts apply in the order of the members, as in transformers.
struct SamplingOptions {
  /// Logits of tokens that the sequence has are divided by it where positive, and multiplied where negative. 1: off.
  double repetition_penalty = 1;
  /// 0 takes the most probable token.
  double temperature = 1;
  /// Only the most probable tokens, so many. 0: all.
  std::int64_t top_k = 0;
  /// Only the most probable tokens that together have at least this, of what top_k has left.
  double top_p = 1;
  /// Only tokens that have at least this share of the most probable one's probability.
  double min_p = 0;
};

/// Errors: kInvalidArgument, which names what is out of range.
[[nodiscard]] Status check_sampling(const SamplingOptions& options);

struct TokenLogProb {
  TokenId token = 0;
  float log_prob = 0;  ///< natural logarithm; at most 0
};

struct SampledToken {
  TokenId token = 0;
  /// Of all tokens' distribution at the temperature, penalised but not cut: what a learner computes of it, who knows
  /// neither top_k nor top_p nor min_p. At temperature 0 of the distribution at temperature 1.
  float log_prob = 0;
  /// The most probable tokens of that distribution, if asked for; the first ones first.
  std::vector<TokenLogProb> top;
};

/// Draws tokens from logits. Keeps its memory between calls. One thread.
class Sampler {
 public:
  /// The token at `uniform`, in [0, 1), of the distribution, whose tokens lie in the order of their ids. Ties go to the
  /// smaller id, so that equal logits and options give equal tokens. `seen` are the tokens of the sequence, which the
  /// penalty takes; `top` is how many alternatives are wanted. Changes `logits`. Nothing if a logit is NaN, or all are
  /// infinite: the model has diverged.
  [[nodiscard]] std::optional<SampledToken> sample(std::span<float> logits, const SamplingOptions& options,
                                                   std::span<const TokenId> seen, double uniform, std::size_t top = 0);
  /// The log-probability of `token`, and `top` alternatives, in softmax(logits). Nothing as in sample().
  [[nodiscard]] std::optional<SampledToken> score(std::span<const float> logits, TokenId token, std::size_t top = 0);

 private:
  /// weights_ of all logits, relative to greatest_; gives their sum, or nothing.
  [[nodiscard]] std::optional<double> weigh(std::span<const float> logits, double temperature);
  /// Puts the `count` tokens of greatest weight in order, as the beginning of order_.
  void order(std::size_t count);
  /// How many tokens are kept, which are then the beginning of order_; at least one.
  [[nodiscard]] std::size_t cut(const SamplingOptions& options, double sum);
  /// The token that `left` of the sum of all weights leads to.
  [[nodiscard]] TokenId draw(double left) const;
  [[nodiscard]] float log_prob(std::span<const float> logits, TokenId token, double temperature, double log_sum) const;
  [[nodiscard]] std::vector<TokenLogProb> best(std::span<const float> logits, double temperature, double log_sum,
                                               std::size_t count) const;

  float greatest_ = 0;
  std::vector<float> weights_;
  std::vector<double> part_sums_;
  std::vector<TokenId> order_;
  std::vector<TokenId> kept_;
  std::vector<bool> is_seen_;
};

}  // namespace weightcast
