#include "trainer/update/updates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/files/posix_file_system.h"
#include "tests/trainer/loop/learner_fixture.h"
#include "tests/trainer/update/random_sample.h"

namespace weightcast {
namespace {

struct UpdatesTest : testing::Test {
  PosixFileSystem files;

  LearnerConfig config(const std::vector<Setting>& more = {}) const {
    return make_config(with(tiny_run("unused"), more)).value();
  }
  Policy policy(const LearnerConfig& of) {
    return Policy::make(std::move(make_initial_model(files, of).value().decoder), of).value();
  }
  static UpdateOptions options_of(const LearnerConfig& of, std::uint64_t micro_batch_tokens) {
    UpdateOptions options;
    options.loss = loss_options(of).value();
    options.learning_rate = 1e-3;
    options.micro_batch_tokens = micro_batch_tokens;
    return options;
  }
  static LossColumns columns_of(std::span<const Sample> samples, const std::vector<double>& advantages) {
    LossColumns columns;
    columns.samples = samples;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      columns.advantages.emplace_back(count_tokens(samples[i]), static_cast<float>(advantages[i]));
    }
    return columns;
  }
  static std::vector<float> weights(Policy& of) {
    std::vector<float> all;
    const auto published = of.published();
    for (std::size_t i = 0; i < published.size(); ++i) {
      const std::size_t first = all.size();
      all.resize(first + published[i].size_bytes / sizeof(float));
      of.read_published(i, std::as_writable_bytes(std::span(all).subspan(first)));
    }
    return all;
  }
};

TEST_F(UpdatesTest, GiveEachTokenTheSameValueWhateverItIsPackedWith) {
  const LearnerConfig c = config();
  const Policy of = policy(c);
  const std::vector<Sample> samples{random_sample(1, 3, 2), random_sample(2, 7, 4), random_sample(3, 1, 1)};
  const auto packed = token_estimates(of.decoder(), nullptr, samples, 1, 1000).log_probs,
             alone = token_estimates(of.decoder(), nullptr, samples, 1, 1).log_probs;
  ASSERT_EQ(packed.size(), 3u);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    ASSERT_EQ(packed[i].size(), alone[i].size());
    for (std::size_t t = 0; t < packed[i].size(); ++t) EXPECT_NEAR(packed[i][t], alone[i][t], 1e-5);
  }
  EXPECT_EQ(packed[1].size(), 4u);
}

TEST_F(UpdatesTest, AddUpOverMicroBatches) {
  const std::vector<Sample> samples{random_sample(1, 3, 2), random_sample(2, 7, 4), random_sample(3, 2, 1)};
  const std::vector<double> advantages{1, -1, 0.5};
  const std::vector<std::size_t> all{0, 1, 2};
  for (const char* mode : {"token-mean", "seq-mean-token-mean", "seq-mean-token-sum"}) {
    const LearnerConfig c = config({{"loss_agg_mode", mode}, {"max_grad_norm", "0"}});
    std::vector<std::vector<float>> after;
    std::vector<Metrics> metrics;
    for (const std::uint64_t tokens : {1, 1000}) {
      Policy of = policy(c);
      const UpdateOptions options = options_of(c, tokens);
      metrics.push_back(update_once(of, columns_of(samples, advantages), all, options).value());
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

/// All weights are 1, whatever stands beside the samples that count.
TEST_F(UpdatesTest, TakeMeansOverThePassesThatThereWere) {
  const LearnerConfig c = config();
  const std::vector<Sample> samples{random_sample(1, 3, 2), random_sample(2, 4, 0), random_sample(3, 2, 1),
                                    random_sample(4, 4, 0)};
  const std::vector<std::size_t> all{0, 1, 2, 3};
  Policy of = policy(c);
  const auto metrics = update_once(of, columns_of(samples, {1, 1, -1, 1}), all, options_of(c, 1)).value();
  EXPECT_NEAR(metrics.at("rollout_corr/rollout_is_eff_sample_size"), 1, 1e-6);
  const auto nothing =
      update_once(of, columns_of(samples, {1, 1, 1, 1}), std::vector<std::size_t>{1, 3}, options_of(c, 1));
  ASSERT_TRUE(nothing.has_value()) << nothing.error().message();
  EXPECT_EQ(nothing->count("rollout_corr/rollout_is_eff_sample_size"), 0u);
}

TEST_F(UpdatesTest, RaiseWhatHasAPositiveAdvantage) {
  const LearnerConfig c = config();
  Policy of = policy(c);
  const std::vector<Sample> samples{random_sample(1, 3, 2), random_sample(2, 3, 2)};
  const std::vector<double> advantages{1, -1};
  const std::vector<std::size_t> all{0, 1};
  const auto before = token_estimates(of.decoder(), nullptr, samples, 1, 1000).log_probs;
  const UpdateOptions options = options_of(c, 1000);
  ASSERT_TRUE(update_once(of, columns_of(samples, advantages), all, options).has_value());
  const auto after = token_estimates(of.decoder(), nullptr, samples, 1, 1000).log_probs;
  EXPECT_GT(after[0][0] + after[0][1], before[0][0] + before[0][1]);
  EXPECT_LT(after[1][0] + after[1][1], before[1][0] + before[1][1]);
}

TEST_F(UpdatesTest, SkipWhatIsNotFinite) {
  const LearnerConfig c = config();
  Policy of = policy(c);
  const std::vector<float> before = weights(of);
  const std::vector<Sample> samples{random_sample(1, 3, 2)};
  const std::vector<double> advantages{std::nan("")};
  const UpdateOptions options = options_of(c, 1000);
  const auto metrics = update_once(of, columns_of(samples, advantages), std::vector<std::size_t>{0}, options);
  ASSERT_TRUE(metrics.has_value()) << metrics.error().message();
  EXPECT_EQ(metrics->at("actor/skipped_updates"), 1);
  EXPECT_EQ(weights(of), before);
}

TEST_F(UpdatesTest, KeepFloatMastersOfBfloat16) {
  const LearnerConfig c = config({{"dtype", "bfloat16"}});
  Policy of = policy(c);
  const std::vector<Sample> samples{random_sample(1, 3, 2), random_sample(2, 7, 4)};
  const std::vector<double> advantages{1, -1};
  const UpdateOptions options = options_of(c, 4);
  const auto metrics = update_once(of, columns_of(samples, advantages), std::vector<std::size_t>{0, 1}, options);
  ASSERT_TRUE(metrics.has_value()) << metrics.error().message();
  EXPECT_GT(metrics->at("actor/grad_norm"), 0);
  EXPECT_EQ(of.published().front().dtype, "BF16");
  Checkpoint checkpoint;
  ASSERT_TRUE(of.save(checkpoint).has_value());
  Policy other = policy(c);
  ASSERT_TRUE(other.load(checkpoint).has_value());
  Checkpoint again;
  ASSERT_TRUE(other.save(again).has_value());
  for (const auto& [file, tensors] : checkpoint.tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(again.tensors.at(file)[i].bytes, tensors[i].bytes) << tensors[i].info.name;
    }
  }
}

TEST_F(UpdatesTest, ChangeTheAdapterAlone) {
  const LearnerConfig c = config({{"lora_rank", "4"}, {"lora_dropout", "0.5"}, {"weight_decay", "0"}});
  Policy of = policy(c);
  const std::vector<Sample> samples{random_sample(1, 3, 2), random_sample(2, 7, 4)};
  const auto bare = copy_tensors(of.decoder().parameters());
  const std::vector<float> before = weights(of);
  UpdateOptions options = options_of(c, 1000);
  for (std::uint64_t update = 0; update < 2; ++update) {  // the first one changes B alone, as B is 0
    options.dropout_seed = update;
    ASSERT_TRUE(update_once(of, columns_of(samples, {1, -1}), std::vector<std::size_t>{0, 1}, options).has_value());
  }
  const auto after = copy_tensors(of.decoder().parameters());
  for (std::size_t i = 0; i < bare.size(); ++i) EXPECT_EQ(after[i].bytes, bare[i].bytes) << bare[i].info.name;
  EXPECT_NE(weights(of), before) << "what is published is merged";

  // Changed cells, of which the merged matrices' are found by comparing.
  std::vector<float> merged = before;
  std::size_t first = 0, changed = 0;
  const auto published = of.published();
  for (std::size_t i = 0; i < published.size(); ++i) {
    const ChangedCells cells = of.take_changes(i);
    changed += cells.indices.size();
    for (std::size_t j = 0; j < cells.indices.size(); ++j) {
      std::memcpy(&merged[first + cells.indices[j]], cells.values.data() + 4 * j, 4);
    }
    first += published[i].size_bytes / 4;
    EXPECT_TRUE(of.take_changes(i).indices.empty());
  }
  EXPECT_EQ(merged, weights(of));
  EXPECT_GT(changed, 0u);
  EXPECT_LT(changed, merged.size()) << "the embedding has no adapter";

  // Another policy whose adapter comes from a checkpoint gives tokens the same values.
  Checkpoint checkpoint;
  ASSERT_TRUE(of.save(checkpoint).has_value());
  EXPECT_EQ(checkpoint.tensors.count("adapter_model.safetensors"), 1u);
  Policy other = policy(c);
  ASSERT_TRUE(other.load(checkpoint).has_value());
  EXPECT_EQ(token_estimates(of.decoder(), nullptr, samples, 1, 1000).log_probs,
            token_estimates(other.decoder(), nullptr, samples, 1, 1000).log_probs);
  Policy wider = policy(config({{"lora_rank", "8"}}));
  EXPECT_NE(wider.load(checkpoint).error().message().find("an adapter of another form"), std::string::npos);
}

TEST_F(UpdatesTest, PublishTheAdapterAloneWhereTold) {
  Policy of = policy(config({{"lora_rank", "4"}, {"lora_publish", "adapter"}, {"lora_target_modules", "q_proj"}}));
  const auto published = of.published();
  ASSERT_EQ(published.size(), 4u);
  EXPECT_EQ(published[0].name, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(published[0].shape, (std::vector<std::uint64_t>{4, 32}));
}

TEST_F(UpdatesTest, TeachTheValueHead) {
  const LearnerConfig c = config({{"advantage_estimator", "gae"}, {"max_grad_norm", "0"}});
  Policy of = policy(c);
  ASSERT_NE(of.value_head(), nullptr);
  const std::vector<Sample> samples{random_sample(1, 3, 2), random_sample(2, 7, 4)};
  LossColumns columns = columns_of(samples, {0, 0});
  columns.old_values = {{0, 0}, {0, 0, 0, 0}};
  columns.returns = {{1, 1}, {-1, -1, -1, -1}};
  UpdateOptions options = options_of(c, 6);
  options.learning_rate = 0;
  options.value_loss_coef = 1;
  options.value_learning_rate = 0.02;
  double first = 0, last = 0;
  for (int update = 0; update < 50; ++update) {
    last = update_once(of, columns, std::vector<std::size_t>{0, 1}, options).value().at("critic/vf_loss");
    if (update == 0) first = last;
  }
  EXPECT_NEAR(first, 0.5, 1e-6);
  EXPECT_LT(last, 0.1);
  const auto values = token_estimates(of.decoder(), of.value_head(), samples, 1, 1000).values;
  EXPECT_GT(values[0][0], 0);
  EXPECT_LT(values[1][0], 0);
}

TEST_F(UpdatesTest, ComeToTheSameGradientsWithActivationCheckpointing) {
  std::vector<std::vector<float>> after;
  for (const char* checkpointing : {"false", "true"}) {
    const LearnerConfig c = config({{"activation_checkpointing", checkpointing}, {"lora_rank", "2"}});
    Policy of = policy(c);
    ASSERT_EQ(of.decoder().options().activation_checkpointing, checkpointing == std::string("true"));
    const std::vector<Sample> samples{random_sample(1, 3, 2), random_sample(2, 7, 4)};
    ASSERT_TRUE(
        update_once(of, columns_of(samples, {1, -1}), std::vector<std::size_t>{0, 1}, options_of(c, 1000)).has_value());
    after.push_back(weights(of));
  }
  EXPECT_EQ(after[0], after[1]);
}

}  // namespace
}  // namespace weightcast
