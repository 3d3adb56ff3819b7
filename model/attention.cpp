#include "model/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/result.h"

namespace weightcast {
namespace {

using torch::Tensor;

// A group's longest sequence is at most a quarter longer than its shortest, so that at most a third of the work is
// padding. Short sequences cost calls rather than work, so they share groups more freely.
constexpr double kLengthRatioMin = 0.8;
constexpr std::int64_t kShortLength = 64;
// Bounds the scores of one group.
constexpr std::int64_t kGroupScoresMax = std::int64_t{1} << 20;

/// [sequences, n, heads, size] as [sequences, key-value heads, heads / key-value heads * n, size]: the queries that
/// share a key as rows of one matrix, so that keys need not be repeated.
Tensor fold_queries(const Tensor& query, std::int64_t key_value_heads) {
  const std::int64_t group = query.size(2) / key_value_heads;
  return query.view({query.size(0), query.size(1), key_value_heads, group, query.size(3)})
      .permute({0, 2, 3, 1, 4})
      .reshape({query.size(0), key_value_heads, group * query.size(1), query.size(3)});
}

Tensor unfold_queries(const Tensor& folded, std::int64_t length) {
  const std::int64_t group = folded.size(2) / length;
  return folded.view({folded.size(0), folded.size(1), group, length, folded.size(3)})
      .permute({0, 3, 1, 2, 4})
      .reshape({folded.size(0), length, folded.size(1) * group, folded.size(3)});
}

/// `bias` is added to the scores: [sequences or 1, 1, 1, n, positions].
Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias) {
  const std::int64_t key_value_heads = key.size(2);
  const double scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
  Tensor scores = at::matmul(fold_queries(query, key_value_heads), key.permute({0, 2, 3, 1}));
  scores = scores * scale;
  const std::int64_t length = query.size(1);
  scores = scores.view({scores.size(0), key_value_heads, -1, length, scores.size(3)}).add_(bias);
  const Tensor probabilities = at::softmax(scores, -1, at::kFloat)
                                   .to(query.scalar_type())
                                   .view({query.size(0), key_value_heads, -1, key.size(1)});
  return unfold_queries(at::matmul(probabilities, value.transpose(1, 2)), length);
}

Tensor causal_bias(std::int64_t length, const at::TensorOptions& options) {
  return at::full({length, length}, -std::numeric_limits<float>::infinity(), options).triu_(1);
}

}  // namespace

PackedSequences::PackedSequences(std::span<const std::int64_t> starts, std::int64_t tokens, torch::Device device) {
  WC_CHECK(!starts.empty() && starts.front() == 0);
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    lengths.push_back((i + 1 < starts.size() ? starts[i + 1] : tokens) - starts[i]);
    WC_CHECK(lengths.back() > 0);
  }
  std::vector<std::size_t> sequence(starts.size());
  std::iota(sequence.begin(), sequence.end(), std::size_t{0});
  std::stable_sort(sequence.begin(), sequence.end(),
                   [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::int64_t> from;
  std::vector<std::int64_t> to(static_cast<std::size_t>(tokens));
  for (const std::size_t i : sequence) {
    const bool fits =
        !groups_.empty() &&
        (groups_.back().length <= kShortLength ||
         static_cast<double>(lengths[i]) >= kLengthRatioMin * static_cast<double>(groups_.back().length)) &&
        (groups_.back().sequences + 1) * groups_.back().length * groups_.back().length <= kGroupScoresMax;
    if (!fits) groups_.push_back({0, lengths[i]});
    ++groups_.back().sequences;
    for (std::int64_t position = 0; position < groups_.back().length; ++position) {
      const bool padding = position >= lengths[i];
      in_order_ = in_order_ && !padding && starts[i] + position == static_cast<std::int64_t>(from.size());
      if (!padding) to[static_cast<std::size_t>(starts[i] + position)] = static_cast<std::int64_t>(from.size());
      from.push_back(starts[i] + (padding ? 0 : position));
    }
  }
  if (in_order_) return;
  order_.from = torch::tensor(from, at::kLong).to(device);
  order_.to = torch::tensor(to, at::kLong).to(device);
}

Tensor packed_attention(const Tensor& query, const Tensor& key, const Tensor& value, const PackedSequences& sequences) {
  const auto to_groups = [&](const Tensor& x) {
    std::vector<std::int64_t> rows;
    for (const PackedSequences::Group& group : sequences.groups()) rows.push_back(group.sequences * group.length);
    const Tensor moved = sequences.in_order() ? x : reorder(x, sequences.order());
    return moved.split_with_sizes(rows, 0);
  };
  const std::vector<Tensor> queries = to_groups(query);
  const std::vector<Tensor> keys = to_groups(key);
  const std::vector<Tensor> values = to_groups(value);
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const PackedSequences::Group& group = sequences.groups()[i];
    const auto by_sequence = [&](const Tensor& x) {
      return x.view({group.sequences, group.length, x.size(1), x.size(2)});
    };
    results.push_back(attend(by_sequence(queries[i]), by_sequence(keys[i]), by_sequence(values[i]),
                             causal_bias(group.length, query.options()))
                          .flatten(0, 1));
  }
  const Tensor result = results.size() == 1 ? results.front() : at::cat(results, 0);
  return sequences.in_order() ? result : restore(result, sequences.order());
}

Tensor cached_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& hidden) {
  const Tensor bias =
      at::zeros(hidden.sizes(), query.options()).masked_fill_(hidden, -std::numeric_limits<float>::infinity());
  return attend(query, key, value, bias.unsqueeze(1).unsqueeze(1));
}

}  // namespace weightcast
