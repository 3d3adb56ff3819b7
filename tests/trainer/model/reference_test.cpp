// Numbers that other projects' tests expect.

#include <gtest/gtest.h>
#include <torch/types.h>

#include "trainer/model/decoder.h"
#include "trainer/model/layers/rope.h"

namespace weightcast {
namespace {

using torch::Tensor;

// torchtune, tests/torchtune/modules/test_position_embeddings.py. Its pairs are neighbours; ours are the two halves.
TEST(Rope, HasTheNumbersOfTorchtune) {
  constexpr std::int64_t kTorchtuneHeadDim = 128;
  const Tensor input =
      at::randn({4, 2048, 32, kTorchtuneHeadDim}, at::detail::createCPUGenerator(0), at::TensorOptions());
  RopeConfig rope;
  const Rotation rotation = rope_rotation(torch::tensor(rope_frequencies(rope, kTorchtuneHeadDim)), 1,
                                          at::arange(2048, at::TensorOptions(at::kLong)), at::kFloat);
  const Tensor halves = input.unflatten(-1, {kTorchtuneHeadDim / 2, 2}).transpose(-1, -2).flatten(-2, -1);
  const Tensor result = rotate(halves, rotation);
  EXPECT_NEAR(result.mean().item<float>(), 6.4543e-05, 1e-8);
  EXPECT_NEAR(result.sum().item<float>(), 2165.7053, 0.3);
  EXPECT_NEAR(result.max().item<float>(), 5.4546, 1e-4);
}

// torchtune, tests/torchtune/models/qwen2/test_qwen2.py: the mean logit of a whole model with given weights.
TEST(Decoder, HasTheMeanLogitOfTorchtune) {
  ModelConfig config;
  config.architecture = Architecture::kQwen2;
  config.vocab_size = 32000;
  config.hidden_size = 128;
  config.intermediate_size = 256;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 16;
  config.num_key_value_heads = 8;
  config.head_dim = 8;
  config.rms_norm_eps = 1e-5;
  config.rope.theta = 1e6;
  config.qkv_bias = true;
  const Result<Decoder> decoder = Decoder::random(config, 1);
  ASSERT_TRUE(decoder.has_value());
  const at::NoGradGuard no_gradients;
  for (const Parameter& parameter : decoder->parameters()) {
    const auto elements = static_cast<double>(parameter.tensor.numel());
    const Tensor values = at::arange(-0.25, 0.5, 0.75 / elements, at::TensorOptions(at::kFloat));
    parameter.tensor.copy_(values.slice(0, 0, parameter.tensor.numel()).view(parameter.tensor.sizes()));
  }
  const Tensor ids = at::randint(0, 32000, {2, 100}, at::detail::createCPUGenerator(16), at::TensorOptions(at::kLong));
  const std::vector<std::int64_t> starts{0, 100};
  const Tensor logits = at::linear(decoder->hidden(ids.flatten(), starts), decoder->head());
  EXPECT_NEAR(logits.mean().item<float>(), 3.9763, 1e-4);
}

}  // namespace
}  // namespace weightcast
