#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/model/layers/layer_functions.h"

namespace weightcast {

/// How attention goes over sequences that lie one after the other in one tensor of tokens. Sequences of similar length
/// are computed together, padded at their ends; none sees another's tokens.
class PackedSequences {
 public:
  /// Sequences padded to one length.
  struct Group {
    std::int64_t sequences = 0;
    std::int64_t length = 0;
  };

  /// Sequence i is the tokens from `starts[i]` to the next start, or to `tokens`. `starts` begins with 0 and ascends.
  PackedSequences(std::span<const std::int64_t> starts, std::int64_t tokens, torch::Device device);

  /// Whether [tokens, ...] rows have to be moved to be in groups.
  [[nodiscard]] bool in_order() const { return in_order_; }
  /// From tokens to the groups' rows, one group after the other.
  [[nodiscard]] const RowOrder& order() const { return order_; }
  [[nodiscard]] const std::vector<Group>& groups() const { return groups_; }

 private:
  std::vector<Group> groups_;
  RowOrder order_;
  bool in_order_ = true;
};

/// Causal attention: `query` [tokens, heads, head_dim], `key` and `value` [tokens, key-value heads, head_dim], each
/// group of heads / key-value heads queries with one key. Gives [tokens, heads, head_dim]. Softmax in FP32. With a
/// `window` above 0 a token attends to so many positions, its own included, and to none before them.
[[nodiscard]] torch::Tensor packed_attention(const torch::Tensor& query, const torch::Tensor& key,
                                             const torch::Tensor& value, const PackedSequences& sequences,
                                             std::int64_t window = 0);

}  // namespace weightcast
