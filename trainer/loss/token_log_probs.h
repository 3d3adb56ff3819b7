#pragma once

#include <torch/types.h>

#include <cstdint>

namespace weightcast {

struct TokenLogProbs {
  torch::Tensor log_probs;  ///< FP32 [T]
  torch::Tensor entropy;    ///< FP32 [T], of the whole distribution, in nats
};

/// As many bytes of FP32 logits are alive at a time, at least one token's.
inline constexpr std::int64_t kLogitBytes = std::int64_t{64} << 20;

/// Log-probabilities of `targets` under softmax(hidden head^T / temperature), and that distribution's entropy.
/// `hidden` [T, D] and `head` [V, D] are FP32 or BF16 alike; logits and softmax are FP32, as in the engine. `targets`
/// is int64 [T]; a negative one says that there is none: its values are 0, without gradient. Tokens are taken in chunks
/// of at most `logit_bytes`, and the backward pass computes a chunk's logits again, so the peak of memory does not grow
/// with T x V. Both results have gradients to `hidden` and `head`, once (there is no second derivative). Throws
/// c10::Error if shapes or types do not fit, or the temperature is not above 0.
[[nodiscard]] TokenLogProbs token_log_probs(const torch::Tensor& hidden, const torch::Tensor& head,
                                            const torch::Tensor& targets, double temperature = 1,
                                            std::int64_t logit_bytes = kLogitBytes);

}  // namespace weightcast
