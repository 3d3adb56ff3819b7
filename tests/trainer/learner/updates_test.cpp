#include "trainer/learner/updates.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/posix_file_system.h"
#include "base/random.h"
#include "tests/trainer/learner/learner_fixture.h"
#include "trainer/learner/completion.h"

namespace weightcast {
namespace {

Sample sample_of(std::uint64_t seed, std::size_t prompt, std::size_t response) {
  Random random(seed);
  Sample sample;
  for (std::size_t i = 0; i < prompt + response; ++i) sample.tokens.push_back(std::int32_t(random.below(256)));
  sample.loss_mask.assign(prompt, 0);
  sample.loss_mask.resize(prompt + response, 1);
  sample.weights.assign(sample.loss_mask.begin(), sample.loss_mask.end());
  return sample;
}

struct UpdatesTest : testing::Test {
  PosixFileSystem files;

  LearnerConfig config(const std::vector<Setting>& more = {}) const {
    return make_config(with(tiny_run("unused"), more)).value();
  }
  Policy policy(const LearnerConfig& of) {
    return Policy::make(std::move(make_initial_model(files, of).value().decoder), of).value();
  }
  static std::vector<float> weights(const Policy& of) {
    std::vector<float> all;
    for (const PublishedTensor& tensor : of.published()) {
      const auto* cells = reinterpret_cast<const float*>(tensor.bytes.data());
      all.insert(all.end(), cells, cells + tensor.bytes.size() / sizeof(float));
    }
    return all;
  }
};

TEST_F(UpdatesTest, GiveEachTokenTheSameValueWhateverItIsPackedWith) {
  const LearnerConfig c = config();
  const Policy of = policy(c);
  const std::vector<Sample> samples{sample_of(1, 3, 2), sample_of(2, 7, 4), sample_of(3, 1, 1)};
  const auto packed = token_values(of.decoder(), samples, 1, 1000), alone = token_values(of.decoder(), samples, 1, 1);
  ASSERT_EQ(packed.size(), 3u);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    ASSERT_EQ(packed[i].size(), alone[i].size());
    for (std::size_t t = 0; t < packed[i].size(); ++t) EXPECT_NEAR(packed[i][t], alone[i][t], 1e-5);
  }
  EXPECT_EQ(packed[1].size(), 4u);
}

TEST_F(UpdatesTest, AddUpOverMicroBatches) {
  const std::vector<Sample> samples{sample_of(1, 3, 2), sample_of(2, 7, 4), sample_of(3, 2, 1)};
  const std::vector<double> advantages{1, -1, 0.5};
  const std::vector<std::size_t> all{0, 1, 2};
  for (const char* mode : {"token-mean", "seq-mean-token-mean", "seq-mean-token-sum"}) {
    const LearnerConfig c = config({{"loss_agg_mode", mode}, {"max_grad_norm", "0"}});
    std::vector<std::vector<float>> after;
    std::vector<Metrics> metrics;
    for (const std::uint64_t tokens : {1, 1000}) {
      Policy of = policy(c);
      const UpdateOptions options{loss_options(c).value(), 1, 1e-3, tokens};
      metrics.push_back(update_once(of, {samples, advantages, {}, {}, {}, false}, all, options).value());
      after.push_back(weights(of));
    }
    EXPECT_NEAR(metrics[0].at("actor/pg_loss"), metrics[1].at("actor/pg_loss"), 1e-5) << mode;
    EXPECT_NEAR(metrics[0].at("actor/grad_norm"), metrics[1].at("actor/grad_norm"), 1e-4) << mode;
    double difference = 0;
    for (std::size_t i = 0; i < after[0].size(); ++i) difference += std::abs(after[0][i] - after[1][i]) > 1e-4;
    // The first step of AdamW has the gradient's sign alone: it may turn where the gradient is almost 0.
    EXPECT_LT(difference / double(after[0].size()), 0.01) << mode;
  }
}

TEST_F(UpdatesTest, RaiseWhatHasAPositiveAdvantage) {
  const LearnerConfig c = config();
  Policy of = policy(c);
  const std::vector<Sample> samples{sample_of(1, 3, 2), sample_of(2, 3, 2)};
  const std::vector<double> advantages{1, -1};
  const std::vector<std::size_t> all{0, 1};
  const auto before = token_values(of.decoder(), samples, 1, 1000);
  const UpdateOptions options{loss_options(c).value(), 1, 1e-3, 1000};
  ASSERT_TRUE(update_once(of, {samples, advantages, {}, {}, {}, false}, all, options).has_value());
  const auto after = token_values(of.decoder(), samples, 1, 1000);
  EXPECT_GT(after[0][0] + after[0][1], before[0][0] + before[0][1]);
  EXPECT_LT(after[1][0] + after[1][1], before[1][0] + before[1][1]);
}

TEST_F(UpdatesTest, SkipWhatIsNotFinite) {
  const LearnerConfig c = config();
  Policy of = policy(c);
  const std::vector<float> before = weights(of);
  const std::vector<Sample> samples{sample_of(1, 3, 2)};
  const std::vector<double> advantages{std::nan("")};
  const UpdateOptions options{loss_options(c).value(), 1, 1e-3, 1000};
  const auto metrics = update_once(of, {samples, advantages, {}, {}, {}, false}, std::vector<std::size_t>{0}, options);
  ASSERT_TRUE(metrics.has_value()) << metrics.error().message();
  EXPECT_EQ(metrics->at("actor/skipped_updates"), 1);
  EXPECT_EQ(weights(of), before);
}

TEST_F(UpdatesTest, KeepFloatMastersOfBfloat16) {
  const LearnerConfig c = config({{"dtype", "bfloat16"}});
  Policy of = policy(c);
  const std::vector<Sample> samples{sample_of(1, 3, 2), sample_of(2, 7, 4)};
  const std::vector<double> advantages{1, -1};
  const UpdateOptions options{loss_options(c).value(), 1, 1e-3, 4};
  const auto metrics =
      update_once(of, {samples, advantages, {}, {}, {}, false}, std::vector<std::size_t>{0, 1}, options);
  ASSERT_TRUE(metrics.has_value()) << metrics.error().message();
  EXPECT_GT(metrics->at("actor/grad_norm"), 0);
  EXPECT_EQ(of.published().front().dtype, "BF16");
  Checkpoint checkpoint;
  of.save(checkpoint);
  Policy other = policy(c);
  ASSERT_TRUE(other.load(checkpoint).has_value());
  Checkpoint again;
  other.save(again);
  for (const auto& [file, tensors] : checkpoint.tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(again.tensors.at(file)[i].bytes, tensors[i].bytes) << tensors[i].info.name;
    }
  }
}

/// What the sampler records is what the learner computes of the same tokens.
TEST_F(UpdatesTest, AgreeWithTheSampler) {
  const LearnerConfig c = config();
  const Policy of = policy(c);
  std::vector<CompletionRequest> requests;
  for (std::uint64_t i = 0; i < 12; ++i) {
    requests.push_back({sample_of(i / 3, 2 + i / 3, 0).tokens, i});
  }
  const auto completions = complete(of.decoder(), requests, {.temperature = 0.7, .tokens_max = 6, .end_token = 256});
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
  const auto values = token_values(of.decoder(), samples, 0.7, 1000);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    ASSERT_EQ(values[i].size(), completions[i].log_probs.size());
    for (std::size_t t = 0; t < values[i].size(); ++t) EXPECT_NEAR(values[i][t], completions[i].log_probs[t], 1e-4);
  }
  EXPECT_NE(completions[0].tokens, completions[1].tokens) << "samples of a group differ";
  const auto again = complete(of.decoder(), requests, {.temperature = 0.7, .tokens_max = 6, .end_token = 256});
  for (std::size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].tokens, completions[i].tokens);
}

}  // namespace
}  // namespace weightcast
