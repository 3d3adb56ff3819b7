#include "trainer/learner/completion.h"

#include <gtest/gtest.h>

#include "base/posix_file_system.h"
#include "tests/trainer/learner/learner_fixture.h"
#include "tests/trainer/learner/random_sample.h"
#include "trainer/learner/updates.h"
#include "worker/engine/engine_model.h"

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

TEST(Completion, AnswersEachRequestAlikeInSmallAndLargeBatches) {
  const Decoder decoder = Decoder::random(tiny_model(), 7, {}).value();
  std::vector<CompletionRequest> requests;
  for (std::int32_t i = 0; i < 7; ++i) requests.push_back({{1, 2, 3 + i / 3}, static_cast<std::uint64_t>(i)});
  CompletionOptions options;
  options.tokens_max = 5;
  const auto together = complete(decoder, requests, options).value();
  options.cache_bytes_max = 2 * kBlockPositions * kPositionBytes;  // two sequences
  const auto in_parts = complete(decoder, requests, options).value();
  ASSERT_EQ(together.size(), 7u);
  ASSERT_EQ(in_parts.size(), 7u);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(together[i].tokens, in_parts[i].tokens) << i;
    EXPECT_EQ(together[i].log_probs, in_parts[i].log_probs) << i;
  }
}

// What the learner computes of the same tokens, with and without an adapter, and in BF16 but for that one's rounding.
TEST(Completion, SamplesFromTheDecodersDistribution) {
  for (const bool adapted : {false, true}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      Decoder decoder = Decoder::random(tiny_model(), 7, {.dtype = dtype}).value();
      const at::NoGradGuard no_gradients;
      if (adapted) {
        LoraConfig lora;
        lora.rank = 2;
        lora.target_modules = {"q_proj", "down_proj"};
        ASSERT_TRUE(decoder.add_adapter(lora, 3).has_value());
        for (const Parameter& parameter : decoder.adapter_parameters()) parameter.tensor.fill_(0.1);
      }
      const std::vector<CompletionRequest> requests{{{1, 2, 3}, 5}};
      const Completion answer = complete(decoder, requests, {.tokens_max = 8, .end_token = 39}).value().front();
      std::vector<std::int64_t> ids{1, 2, 3};
      ids.insert(ids.end(), answer.tokens.begin(), answer.tokens.end());
      const std::vector<std::int64_t> starts{0};
      const torch::Tensor hidden = decoder.hidden(torch::tensor(ids, at::kLong), starts);
      const torch::Tensor log_probs = at::log_softmax(at::linear(hidden, decoder.head()).to(at::kFloat), -1);
      for (std::size_t i = 0; i < answer.tokens.size(); ++i) {
        const double expected = log_probs[static_cast<std::int64_t>(2 + i)][answer.tokens[i]].item<double>();
        EXPECT_NEAR(answer.log_probs[i], expected, dtype == at::kFloat ? 1e-4 : 2e-2) << adapted;
      }
    }
  }
}

TEST(Completion, EndsWhenItsCallerHasToEnd) {
  const Decoder decoder = Decoder::random(tiny_model(), 7, {}).value();
  const std::vector<CompletionRequest> requests{{{1, 2, 3}, 5}};
  CompletionOptions options;
  options.tokens_max = 50;
  options.end_token = 39;
  int calls = 0;
  options.check = [&]() -> Status {
    if (++calls < 3) return {};
    return fail(Errc::kClosed, Op::kReceive, "rank 1 is gone");
  };
  const auto answers = complete(decoder, requests, options);
  ASSERT_FALSE(answers.has_value());
  EXPECT_EQ(answers.error().code, Errc::kClosed);
  EXPECT_EQ(calls, 3) << "between steps, not after them";
}

TEST(Completion, RefusesAPromptBeyondTheContext) {
  ModelConfig config = tiny_model();
  config.max_position_embeddings = 4;
  const Decoder decoder = Decoder::random(config, 7, {}).value();
  const std::vector<CompletionRequest> requests{{{1, 2, 3, 4}, 5}};
  EXPECT_EQ(complete(decoder, requests, {}).error().code, Errc::kTooLarge);
}

/// What the sampler records is what the learner computes of the same tokens.
TEST(Completion, HasTheValuesThatUpdatesCompute) {
  PosixFileSystem files;
  const LearnerConfig config = make_config(tiny_run("unused")).value();
  const Decoder decoder = std::move(make_initial_model(files, config).value().decoder);
  std::vector<CompletionRequest> requests;
  for (std::uint64_t i = 0; i < 12; ++i) {
    requests.push_back({random_sample(i / 3, 2 + i / 3, 0).tokens, i});
  }
  const auto completions = complete(decoder, requests, {.temperature = 0.7, .tokens_max = 6, .end_token = 256}).value();
  std::vector<Sample> samples;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Sample& sample = samples.emplace_back();
    sample.tokens = requests[i].prompt;
    sample.loss_mask.assign(sample.tokens.size(), 0);
    sample.tokens.insert(sample.tokens.end(), completions[i].tokens.begin(), completions[i].tokens.end());
    sample.loss_mask.resize(sample.tokens.size(), 1);
    ASSERT_FALSE(completions[i].tokens.empty());
    EXPECT_LE(completions[i].tokens.size(), 6u);
  }
  const auto values = token_values(decoder, samples, 0.7, 1000);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    ASSERT_EQ(values[i].size(), completions[i].log_probs.size());
    for (std::size_t t = 0; t < values[i].size(); ++t) EXPECT_NEAR(values[i][t], completions[i].log_probs[t], 1e-4);
  }
  EXPECT_NE(completions[0].tokens, completions[1].tokens) << "samples of a group differ";
  const auto again = complete(decoder, requests, {.temperature = 0.7, .tokens_max = 6, .end_token = 256}).value();
  for (std::size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].tokens, completions[i].tokens);
}

}  // namespace
}  // namespace weightcast
