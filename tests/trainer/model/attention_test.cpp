#include "trainer/model/layers/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace weightcast {
namespace {

using torch::Tensor;

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKeyValueHeads = 2;
constexpr std::int64_t kHeadDim = 8;

Tensor random_heads(std::int64_t tokens, std::int64_t heads, std::uint64_t seed) {
  return at::randn({tokens, heads, kHeadDim}, at::detail::createCPUGenerator(seed), at::TensorOptions())
      .set_requires_grad(true);
}

/// The formula, with one mask over all tokens.
Tensor plain_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                       const std::vector<std::int64_t>& lengths, std::int64_t window) {
  std::vector<Tensor> blocks;
  for (const std::int64_t length : lengths) {
    const Tensor causal = at::ones({length, length}).tril();
    blocks.push_back(window == 0 ? causal : causal.triu(1 - window));
  }
  const Tensor bias = at::zeros({query.size(0), query.size(0)})
                          .masked_fill(at::block_diag(blocks) == 0, -std::numeric_limits<float>::infinity());
  const auto repeated = [](const Tensor& x) { return x.repeat_interleave(kHeads / kKeyValueHeads, 1).transpose(0, 1); };
  const Tensor scores = at::matmul(query.transpose(0, 1), repeated(key).transpose(1, 2)) / std::sqrt(double{kHeadDim});
  return at::matmul(at::softmax(scores + bias, -1), repeated(value)).transpose(0, 1);
}

struct Attended {
  Tensor result;
  std::vector<Tensor> gradients;
};

template <typename Attend>
Attended attend(std::int64_t tokens, const Attend& attention) {
  const Tensor query = random_heads(tokens, kHeads, 1);
  const Tensor key = random_heads(tokens, kKeyValueHeads, 2);
  const Tensor value = random_heads(tokens, kKeyValueHeads, 3);
  const Tensor result = attention(query, key, value);
  (result * random_heads(tokens, kHeads, 4).detach()).sum().backward();
  return {result.detach(), {query.grad(), key.grad(), value.grad()}};
}

void expect_equal_to_plain(const std::vector<std::int64_t>& lengths, std::int64_t window = 0) {
  std::vector<std::int64_t> starts;
  std::int64_t tokens = 0;
  for (const std::int64_t length : lengths) {
    starts.push_back(tokens);
    tokens += length;
  }
  const PackedSequences sequences(starts, tokens, at::kCPU);
  const Attended found = attend(tokens, [&](const Tensor& query, const Tensor& key, const Tensor& value) {
    return packed_attention(query, key, value, sequences, window);
  });
  const Attended expected = attend(tokens, [&](const Tensor& query, const Tensor& key, const Tensor& value) {
    return plain_attention(query, key, value, lengths, window);
  });
  EXPECT_LT((found.result - expected.result).abs().max().item<double>(), 1e-5) << window;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_LT((found.gradients[i] - expected.gradients[i]).abs().max().item<double>(), 1e-4) << i << " " << window;
  }
}

// Queries are computed in blocks of 128.
TEST(PackedAttention, IsTheFormulaAtTheEdgesOfBlocks) {
  for (const std::int64_t length : {1, 2, 127, 128, 129, 256, 300}) expect_equal_to_plain({length});
}

TEST(PackedAttention, IsTheFormulaForSequencesOfManyLengths) {
  expect_equal_to_plain({3, 3, 3});
  expect_equal_to_plain({200, 7, 130, 1, 160, 40, 40});
}

TEST(PackedAttention, IsTheFormulaForWindowsOfManyLengths) {
  for (const std::int64_t window : {1, 2, 50, 127, 128, 129, 200, 256, 299, 300, 301, 5000}) {
    expect_equal_to_plain({300}, window);
    expect_equal_to_plain({200, 7, 130, 1, 160, 40, 40}, window);
  }
}

TEST(PackedSequences, GroupsLengthsThatAreAlike) {
  const std::vector<std::int64_t> starts{0, 100, 110, 200, 290, 300};
  const PackedSequences sequences(starts, 304, at::kCPU);
  ASSERT_EQ(sequences.groups().size(), 2U);  // 100, 90, 90; then 10, 10, 4
  EXPECT_EQ(sequences.groups()[0].sequences, 3);
  EXPECT_EQ(sequences.groups()[0].length, 100);
  EXPECT_EQ(sequences.groups()[1].length, 10);
  EXPECT_FALSE(sequences.in_order());
  const std::vector<std::int64_t> equal{0, 5, 10};
  EXPECT_TRUE(PackedSequences(equal, 15, at::kCPU).in_order());
}

}  // namespace
}  // namespace weightcast
