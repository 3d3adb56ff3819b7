#include "trainer/model/layers/attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/result.h"
#include "trainer/model/layers/products.h"

namespace weightcast {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A group's longest sequence is at most a quarter longer than its shortest, so that at most a third of the work is
// padding. Short sequences cost calls rather than work, so they share groups more freely.
constexpr double kLengthRatioMin = 0.8;
constexpr std::int64_t kShortLength = 64;
// Bounds the scores of one group.
constexpr std::int64_t kGroupScoresMax = std::int64_t{1} << 20;

// Queries are computed in blocks of so many, each with the keys up to its end: half of the products are never made, and
// scores take memory for one block.
constexpr std::int64_t kBlockLength = 128;

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

double score_scale(const Tensor& query) { return 1 / std::sqrt(static_cast<double>(query.size(-1))); }

/// FP32 [sequences, key-value heads, rows, positions] of folded queries and keys [sequences, key-value heads,
/// positions, size]. `bias` is added to the scores of the last positions: [1, 1, 1, n, last positions].
Tensor probabilities_of(const Tensor& query, const Tensor& key, const Tensor& bias) {
  const Tensor scores = product(query, key.transpose(-1, -2)).mul_(score_scale(query));
  const std::int64_t biased = bias.size(-1);
  scores.view({scores.size(0), scores.size(1), -1, bias.size(-2), scores.size(3)})
      .narrow(-1, scores.size(3) - biased, biased)
      .add_(bias);
  return at::softmax(scores, -1, at::kFloat);
}

/// A block of queries, and the keys that one of them or another sees.
struct Block {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t first_key = 0;
  std::int64_t keys = 0;
  Tensor bias;  // of the last keys: without a window as many as queries, with one all of them

  [[nodiscard]] Tensor queries_of(const Tensor& x) const { return x.narrow(1, begin, length); }  // [sequences, n, ...]
  [[nodiscard]] Tensor keys_of(const Tensor& x) const {
    return x.narrow(2, first_key, keys);
  }  // [sequences, heads, n, ...]
};

/// [1, 1, 1, length, keys] for queries whose own keys are the last ones.
Tensor bias_of(std::int64_t length, std::int64_t keys, std::int64_t window, const at::TensorOptions& options) {
  const Tensor hidden = at::full({1, 1, 1, length, keys}, -std::numeric_limits<float>::infinity(), options);
  const Tensor bias = hidden.triu(1 + keys - length);
  return window == 0 ? bias : bias.add_(hidden.tril(keys - length - window));
}

/// Calls `compute` for each block of queries.
template <typename Compute>
void for_each_block(const Tensor& query, std::int64_t window, const Compute& compute) {
  const std::int64_t size = query.size(1);
  if (window >= size) window = 0;
  Block block;
  for (; block.begin < size; block.begin += kBlockLength) {
    block.length = std::min(kBlockLength, size - block.begin);
    block.first_key = window == 0 ? 0 : std::max<std::int64_t>(0, block.begin + 1 - window);
    block.keys = block.begin + block.length - block.first_key;
    const std::int64_t biased = window == 0 ? block.length : block.keys;
    // What it hides follows from its shape.
    if (!block.bias.defined() || block.bias.size(-1) != biased || block.bias.size(-2) != block.length) {
      block.bias = bias_of(block.length, biased, window, query.options());
    }
    compute(block);
  }
}

// Attention of sequences of one length: `query` [sequences, n, heads, size]. Keeps its inputs alone, and computes the
// probabilities again in the backward pass, unless they are of one block and so about as large as the inputs.
struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& query, const Tensor& key, const Tensor& value,
                        std::int64_t window) {
    const std::int64_t heads = key.size(2);
    const Tensor keys = key.transpose(1, 2);
    const Tensor values = value.transpose(1, 2);
    Tensor result = at::empty_like(query);
    variable_list saved{query, key, value};
    for_each_block(query, window, [&](const Block& block) {
      const Tensor rows = fold_queries(block.queries_of(query), heads);
      const Tensor wide = probabilities_of(rows, block.keys_of(keys), block.bias);
      const Tensor probabilities = wide.to(query.scalar_type());
      if (block.length == query.size(1)) saved.push_back(wide);
      block.queries_of(result).copy_(unfold_queries(product(probabilities, block.keys_of(values)), block.length));
    });
    context->save_for_backward(saved);
    context->saved_data["window"] = window;
    return result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor& query = saved[0];
    const std::int64_t heads = saved[1].size(2);
    const Tensor keys = saved[1].transpose(1, 2).contiguous();
    const Tensor values = saved[2].transpose(1, 2).contiguous();
    Tensor query_gradient = at::empty_like(query);
    // Several blocks are added to these.
    const at::TensorOptions wide_form = keys.options().dtype(at::kFloat);
    Tensor key_gradient = at::zeros(keys.sizes(), wide_form);
    Tensor value_gradient = at::zeros(values.sizes(), wide_form);
    for_each_block(query, context->saved_data["window"].toInt(), [&](const Block& block) {
      const Tensor rows = fold_queries(block.queries_of(query), heads);
      const Tensor output = fold_queries(block.queries_of(gradients[0]), heads);
      const Tensor wide = saved.size() > 3 ? saved[3] : probabilities_of(rows, block.keys_of(keys), block.bias);
      const Tensor probabilities = wide.to(query.scalar_type());
      block.keys_of(value_gradient).add_(product(probabilities.transpose(-1, -2), output));
      const Tensor by_probability = product(output, block.keys_of(values).transpose(-1, -2));
      const Tensor by_score = at::_softmax_backward_data(by_probability.to(at::kFloat), wide, -1, at::kFloat)
                                  .mul_(score_scale(query))
                                  .to(query.scalar_type());
      block.queries_of(query_gradient).copy_(unfold_queries(product(by_score, block.keys_of(keys)), block.length));
      block.keys_of(key_gradient).add_(product(by_score.transpose(-1, -2), rows));
    });
    return {query_gradient, key_gradient.transpose(1, 2).to(query.scalar_type()),
            value_gradient.transpose(1, 2).to(query.scalar_type()), Tensor()};
  }
};

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

Tensor packed_attention(const Tensor& query, const Tensor& key, const Tensor& value, const PackedSequences& sequences,
                        std::int64_t window) {
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
    results.push_back(
        CausalAttention::apply(by_sequence(queries[i]), by_sequence(keys[i]), by_sequence(values[i]), window)
            .flatten(0, 1));
  }
  const Tensor result = results.size() == 1 ? results.front() : at::cat(results, 0);
  return sequences.in_order() ? result : restore(result, sequences.order());
}

}  // namespace weightcast
