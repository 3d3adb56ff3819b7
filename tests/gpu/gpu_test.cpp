// The learner on a GPU, compared with itself on the CPU.
#include <gtest/gtest.h>

#include <cstring>

#include "base/files/posix_file_system.h"
#include "tests/trainer/model/tiny_configs.h"
#include "tests/trainer/update/random_sample.h"
#include "trainer/model/device.h"
#include "trainer/update/updates.h"

namespace weightcast {
namespace {

using torch::Tensor;

struct GpuTest : testing::Test {
  PosixFileSystem files;
  torch::Device gpu = at::kCPU;

  void SetUp() override {
    const Result<torch::Device> opened = open_device("cuda");
    if (!opened.has_value()) GTEST_SKIP() << opened.error().message();
    gpu = *opened;
  }
  static LearnerConfig config(const char* device, const std::vector<Setting>& more) {
    std::vector<Setting> settings{{"output_dir", "unused"},   {"device", device},
                                  {"init_hidden_size", "64"}, {"init_intermediate_size", "128"},
                                  {"learning_rate", "1e-3"},  {"init_num_hidden_layers", "2"}};
    settings.insert(settings.end(), more.begin(), more.end());
    return make_config(settings).value();
  }
  Policy policy(const LearnerConfig& of) {
    return Policy::make(std::move(make_initial_model(files, of).value().decoder), of).value();
  }
  static void update(Policy& of, const LearnerConfig& config, std::uint64_t seed) {
    const std::vector<Sample> samples{random_sample(seed, 3, 20), random_sample(seed + 1, 70, 90),
                                      random_sample(seed + 2, 5, 1)};
    LossColumns columns;
    columns.samples = samples;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      columns.advantages.emplace_back(count_tokens(samples[i]), i % 2 == 0 ? 1.0F : -1.0F);
    }
    UpdateOptions options;
    options.loss = loss_options(config).value();
    options.learning_rate = 1e-3;
    options.micro_batch_tokens = 100;
    const auto metrics = update_once(of, columns, std::vector<std::size_t>{0, 1, 2}, options);
    ASSERT_TRUE(metrics.has_value()) << metrics.error().message();
    EXPECT_EQ(metrics->at("actor/skipped_updates"), 0);
  }
  static std::vector<std::vector<std::byte>> weights(Policy& of) {
    std::vector<std::vector<std::byte>> all;
    const auto published = of.published();
    for (std::size_t i = 0; i < published.size(); ++i) {
      of.read_published(i, all.emplace_back(published[i].size_bytes));
    }
    return all;
  }
};

TEST_F(GpuTest, ComputesHiddenStatesAndGradientsOfTheCpu) {
  for (const char* architecture :
       {"Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "LlamaForCausalLM", "MistralForCausalLM"}) {
    const ModelConfig model = parse_model_config(tiny_config(architecture).dump()).value();
    const std::vector<std::int64_t> starts{0, 9, 14};
    const Tensor ids = at::randint(0, 48, {30}, at::detail::createCPUGenerator(5), at::TensorOptions(at::kLong));
    std::vector<Tensor> hidden, gradients;
    for (const torch::Device device : {torch::Device(at::kCPU), gpu}) {
      Decoder decoder = Decoder::random(model, 7, {.device = device, .activation_checkpointing = true}).value();
      decoder.set_requires_grad(true);
      hidden.push_back(decoder.hidden(ids.to(device), starts).detach().to(at::kCPU));
      decoder.hidden(ids.to(device), starts).square().mean().backward();
      gradients.push_back(decoder.parameters()[1].tensor.grad().to(at::kCPU));
    }
    EXPECT_LT((hidden[0] - hidden[1]).abs().max().item<double>(), 1e-4) << architecture;
    EXPECT_LT((gradients[0] - gradients[1]).norm().item<double>(), 1e-3 * gradients[0].norm().item<double>() + 1e-6)
        << architecture;
  }
}

TEST_F(GpuTest, ComesToTheWeightsOfTheCpu) {
  for (const std::vector<Setting>& more : std::vector<std::vector<Setting>>{{}, {{"lora_rank", "4"}}}) {
    const LearnerConfig on_cpu = config("cpu", more), on_gpu = config("cuda", more);
    Policy one = policy(on_cpu), other = policy(on_gpu);
    for (std::uint64_t i = 0; i < 3; ++i) {
      update(one, on_cpu, 10 * i);
      update(other, on_gpu, 10 * i);
    }
    const auto expected = weights(one), found = weights(other);
    double different = 0, all = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (std::size_t at = 0; at < expected[i].size(); at += sizeof(float)) {
        float a = 0, b = 0;
        std::memcpy(&a, expected[i].data() + at, sizeof a);
        std::memcpy(&b, found[i].data() + at, sizeof b);
        different += std::abs(a - b) > 2e-4 ? 1 : 0;
        ++all;
      }
    }
    // AdamW's first steps have the gradient's sign alone: it may turn where the gradient is almost 0.
    EXPECT_LT(different / all, 0.01);
  }
}

TEST_F(GpuTest, SendsExactlyWhatHasChanged) {
  for (const char* dtype : {"bfloat16", "float32"}) {
    const LearnerConfig on_gpu = config("cuda", {{"dtype", dtype}});
    Policy of = policy(on_gpu);
    auto held = weights(of);
    for (std::uint64_t i = 0; i < 3; ++i) {
      update(of, on_gpu, 10 * i);
      for (std::size_t tensor = 0; tensor < held.size(); ++tensor) {
        const ChangedCells changes = of.take_changes(tensor);
        const std::size_t cell = changes.indices.empty() ? 0 : changes.values.size() / changes.indices.size();
        for (std::size_t j = 0; j < changes.indices.size(); ++j) {
          std::memcpy(held[tensor].data() + changes.indices[j] * cell, changes.values.data() + j * cell, cell);
        }
      }
      EXPECT_EQ(held, weights(of)) << dtype << ", update " << i;
    }
  }
}

TEST_F(GpuTest, GivesItsCheckpointToTheCpu) {
  const LearnerConfig on_gpu = config("cuda", {{"dtype", "bfloat16"}}), on_cpu = config("cpu", {{"dtype", "bfloat16"}});
  Policy of = policy(on_gpu), other = policy(on_cpu);
  update(of, on_gpu, 1);
  Checkpoint checkpoint, again;
  ASSERT_TRUE(of.save(checkpoint).has_value());
  ASSERT_TRUE(other.load(checkpoint).has_value());
  ASSERT_TRUE(other.save(again).has_value());
  for (const auto& [file, tensors] : checkpoint.tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(again.tensors.at(file)[i].bytes, tensors[i].bytes) << tensors[i].info.name;
    }
  }
}

}  // namespace
}  // namespace weightcast
