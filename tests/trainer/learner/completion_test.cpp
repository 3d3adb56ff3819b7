#include "trainer/learner/completion.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

constexpr std::uint64_t kPositionBytes = 2 * 2 * 1 * 16 * 4;  // keys and values, layers, heads, head_dim, FP32

ModelConfig tiny_model() {
  ModelConfig config;
  config.vocab_size = 40;
  config.hidden_size = 32;
  config.intermediate_size = 64;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 16;
  return config;
}

TEST(Completion, ShrinksItsBatchToTheBytesOfTheCache) {
  const ModelConfig config = tiny_model();
  EXPECT_EQ(cache_rows_max(config, {}, 10, 100 * 10 * kPositionBytes), 100u);
  EXPECT_EQ(cache_rows_max(config, {}, 10, 100 * 10 * kPositionBytes - 1), 99u);
  EXPECT_EQ(cache_rows_max(config, {}, 10, 1), 1u);
  EXPECT_EQ(cache_rows_max(config, {.dtype = torch::kBFloat16}, 10, 100 * 10 * kPositionBytes), 200u);
}

TEST(Completion, AnswersEachRequestAlikeInSmallAndLargeBatches) {
  const Decoder decoder = Decoder::random(tiny_model(), 7, {}).value();
  std::vector<CompletionRequest> requests;
  for (std::int32_t i = 0; i < 7; ++i) requests.push_back({{1, 2, 3 + i / 3}, static_cast<std::uint64_t>(i)});
  CompletionOptions options;
  options.tokens_max = 5;
  const auto together = complete(decoder, requests, options);
  options.cache_bytes_max = 2 * 8 * kPositionBytes;  // two rows of 3 + 5 positions
  const auto in_parts = complete(decoder, requests, options);
  ASSERT_EQ(together.size(), 7u);
  ASSERT_EQ(in_parts.size(), 7u);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(together[i].tokens, in_parts[i].tokens) << i;
    for (std::size_t k = 0; k < together[i].log_probs.size(); ++k) {
      EXPECT_NEAR(together[i].log_probs[k], in_parts[i].log_probs[k], 1e-4);
    }
  }
}

}  // namespace
}  // namespace weightcast
