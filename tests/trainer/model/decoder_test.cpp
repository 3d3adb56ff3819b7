#include "trainer/model/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/trainer/model/tiny_configs.h"
#include "trainer/model/device.h"

namespace weightcast {
namespace {

using torch::Tensor;

ModelConfig config_of(const nlohmann::json& json) {
  const Result<ModelConfig> config = parse_model_config(json.dump());
  WC_CHECK(config.has_value());
  return *config;
}

Decoder random_decoder(const nlohmann::json& json, const DecoderOptions& options = {}) {
  Result<Decoder> decoder = Decoder::random(config_of(json), 7, options);
  WC_CHECK(decoder.has_value());
  // Larger than at initialisation, so that attention is not uniform.
  const at::NoGradGuard no_gradients;
  for (const Parameter& parameter : decoder->parameters()) {
    if (parameter.tensor.dim() == 2) parameter.tensor.mul_(15);
  }
  return *std::move(decoder);
}

Tensor random_ids(std::int64_t count, std::uint64_t seed) {
  return at::randint(0, 48, {count}, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kLong));
}

double largest_difference(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

struct EachArchitecture : ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Decoder, EachArchitecture,
                         ::testing::Values("Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM",
                                           "LlamaForCausalLM", "MistralForCausalLM"));

// Lengths that share groups, that have one of their own, and a sequence of one token.
TEST_P(EachArchitecture, PackedSequencesDoNotSeeEachOther) {
  const Decoder decoder = random_decoder(tiny_config(GetParam()));
  const std::vector<std::int64_t> lengths{5, 90, 1, 17, 88, 5, 40};
  std::vector<std::int64_t> starts{0};
  for (const std::int64_t length : lengths) starts.push_back(starts.back() + length);
  const std::int64_t tokens = starts.back();
  starts.pop_back();
  const Tensor ids = random_ids(tokens, 3);
  const Tensor packed = decoder.hidden(ids, starts);
  const std::vector<std::int64_t> alone{0};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const Tensor single = decoder.hidden(ids.narrow(0, starts[i], lengths[i]), alone);
    EXPECT_LT(largest_difference(packed.narrow(0, starts[i], lengths[i]), single), 1e-5) << i;
  }
  // Another sequence's tokens change nothing at all.
  Tensor changed = ids.clone();
  changed.narrow(0, starts[1], lengths[1]).fill_(1);
  const Tensor after = decoder.hidden(changed, starts);
  // But for rounding where experts are: how many rows an expert multiplies depends on all sequences, and with it, on
  // some processors, which of BLAS's kernels does.
  const bool has_experts = std::string_view(GetParam()) == "Qwen3MoeForCausalLM";
  EXPECT_LE(largest_difference(after.narrow(0, starts[4], lengths[4]), packed.narrow(0, starts[4], lengths[4])),
            has_experts ? 1e-5 : 0);
  EXPECT_FALSE(at::equal(after.narrow(0, starts[1], lengths[1]), packed.narrow(0, starts[1], lengths[1])));
}

TEST_P(EachArchitecture, IsCausal) {
  const Decoder decoder = random_decoder(tiny_config(GetParam()));
  const std::vector<std::int64_t> starts{0};
  const Tensor ids = random_ids(20, 4);
  Tensor changed = ids.clone();
  changed[12] = (ids[12] + 1) % 48;
  const Tensor before = decoder.hidden(ids, starts);
  const Tensor after = decoder.hidden(changed, starts);
  EXPECT_LT(largest_difference(before.narrow(0, 0, 12), after.narrow(0, 0, 12)), 1e-6);
  EXPECT_GT(largest_difference(before.narrow(0, 12, 1), after.narrow(0, 12, 1)), 1e-3);
}

// Each of the two layers lets a token look 6 positions back.
TEST(Decoder, SeesNothingBeforeTheWindow) {
  const Decoder decoder = random_decoder(tiny_config("MistralForCausalLM"));
  const std::vector<std::int64_t> starts{0};
  const Tensor ids = random_ids(40, 4);
  Tensor changed = ids.clone();
  changed[12] = (ids[12] + 1) % 48;
  const Tensor change = (decoder.hidden(ids, starts) - decoder.hidden(changed, starts)).abs().amax(-1);
  EXPECT_GT(change.narrow(0, 12, 13).min().item<double>(), 0);
  EXPECT_EQ(change.narrow(0, 25, 15).max().item<double>(), 0);
}

/// Gradients of all parameters of a loss over two sequences.
std::vector<Tensor> gradients(Decoder& decoder) {
  decoder.set_requires_grad(true);
  const std::vector<std::int64_t> starts{0, 9, 14};
  const Tensor ids = random_ids(30, 5);
  const Tensor logits = at::linear(decoder.hidden(ids, starts), decoder.head());
  at::log_softmax(logits, -1).gather(1, random_ids(30, 6).unsqueeze(1)).mean().backward();
  std::vector<Tensor> result;
  for (const Parameter& parameter : decoder.parameters()) {
    result.push_back(parameter.tensor.grad().defined() ? parameter.tensor.grad() : at::zeros_like(parameter.tensor));
  }
  return result;
}

TEST_P(EachArchitecture, CheckpointingGivesTheSameGradients) {
  Decoder plain = random_decoder(tiny_config(GetParam()));
  Decoder checkpointed = random_decoder(tiny_config(GetParam()), {.activation_checkpointing = true});
  const std::vector<Tensor> expected = gradients(plain);
  const std::vector<Tensor> found = gradients(checkpointed);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i], expected[i])) << plain.parameters()[i].name;
    // Each parameter takes part: an expert that no token of 30 chose would not.
    EXPECT_GT(expected[i].abs().max().item<double>(), 0) << plain.parameters()[i].name;
  }
}

TEST_P(EachArchitecture, GradientsAreFiniteDifferences) {
  Decoder decoder = random_decoder(tiny_config(GetParam()));
  const std::vector<Tensor> found = gradients(decoder);
  const at::NoGradGuard no_gradients;
  const std::vector<std::int64_t> starts{0, 9, 14};
  const auto loss = [&] {
    const Tensor logits = at::linear(decoder.hidden(random_ids(30, 5), starts), decoder.head()).to(at::kDouble);
    return at::log_softmax(logits, -1).gather(1, random_ids(30, 6).unsqueeze(1)).mean().item<double>();
  };
  for (std::size_t i = 0; i < found.size(); ++i) {
    // Along the gradient itself, so that FP32 suffices: the difference is its norm.
    const double norm = found[i].norm().item<double>();
    const double step = 2e-3;
    Tensor parameter = decoder.parameters()[i].tensor;
    const Tensor kept = parameter.clone();
    parameter.add_(found[i], step / norm);
    const double above = loss();
    parameter.copy_(kept).sub_(found[i], step / norm);
    const double below = loss();
    parameter.copy_(kept);
    EXPECT_NEAR((above - below) / (2 * step), norm, 0.03 * norm + 2e-4) << decoder.parameters()[i].name;
  }
}

TEST(Decoder, IsDeterminedByItsSeed) {
  const ModelConfig config = config_of(tiny_config("Qwen3ForCausalLM"));
  const Result<Decoder> a = Decoder::random(config, 1);
  const Result<Decoder> b = Decoder::random(config, 1);
  const Result<Decoder> c = Decoder::random(config, 2);
  ASSERT_TRUE(a.has_value() && b.has_value() && c.has_value());
  EXPECT_TRUE(at::equal(a->parameters()[1].tensor, b->parameters()[1].tensor));
  EXPECT_FALSE(at::equal(a->parameters()[1].tensor, c->parameters()[1].tensor));
  EXPECT_NEAR(a->parameters()[0].tensor.std().item<double>(), 0.02, 0.002);
}

TEST(Device, IsNamedOrRefused) {
  EXPECT_EQ(open_device("cpu").value(), torch::Device(at::kCPU));
  for (const char* name : {"", "gpu", "cuda:", "cuda:-1", "cuda:128", "cuda:1x", "CPU"}) {
    const Result<torch::Device> refused = open_device(name);
    ASSERT_FALSE(refused.has_value()) << name;
    EXPECT_EQ(refused.error().code, Errc::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("it is cpu, cuda, or cuda:N"));
  }
  // More GPUs than any host has; where there is none, it says whether LibTorch or the host is at fault.
  const Result<torch::Device> refused = open_device("cuda:100");
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), ::testing::AnyOf(::testing::HasSubstr("that has no CUDA: build it with one"),
                                                          ::testing::HasSubstr("look at what nvidia-smi says"),
                                                          ::testing::HasSubstr("this host has")));
}

TEST(Decoder, TiedHeadIsTheEmbedding) {
  nlohmann::json json = tiny_config("Qwen2ForCausalLM");
  json["tie_word_embeddings"] = true;
  const Decoder decoder = random_decoder(json);
  EXPECT_TRUE(decoder.head().is_same(decoder.parameters().front().tensor));
}

}  // namespace
}  // namespace weightcast
