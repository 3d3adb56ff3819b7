// Logits and gradients of Hugging Face's transformers (tests/oracles/hf_models.py).

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/random.h"
#include "model/decoder.h"
#include "tests/golden_lines.h"

namespace weightcast {
namespace {

using nlohmann::json;
using torch::Tensor;

/// fill() of hf_models.py.
void fill(const Decoder& decoder, std::uint64_t seed) {
  std::map<std::string, Tensor> by_name;
  for (const Parameter& parameter : decoder.parameters()) by_name.emplace(parameter.name, parameter.tensor);
  for (auto& [name, tensor] : by_name) {
    Random random(seed++);
    const double shift = name.find("norm") == std::string::npos ? -0.5 : 0.5;
    std::vector<float> numbers(static_cast<std::size_t>(tensor.numel()));
    for (float& number : numbers) number = static_cast<float>(random.unit() + shift);
    tensor.copy_(torch::tensor(numbers).view(tensor.sizes()));
  }
}

struct Sequences {
  explicit Sequences(const json& line) {
    std::vector<std::int64_t> all;
    std::vector<std::int64_t> reversed;
    for (const json& sequence : line["sequences"]) {
      starts.push_back(static_cast<std::int64_t>(all.size()));
      for (const json& id : sequence) all.push_back(id.get<std::int64_t>());
      reversed.insert(reversed.end(), all.rbegin(), all.rend() - starts.back());
    }
    ids = torch::tensor(all, at::kLong);
    targets = torch::tensor(reversed, at::kLong);
  }
  Tensor ids;
  Tensor targets;
  std::vector<std::int64_t> starts;
};

Decoder decoder_of(const json& line, const DecoderOptions& options) {
  const Result<ModelConfig> config = parse_model_config(line["config"].dump());
  EXPECT_TRUE(config.has_value()) << config.error().detail;
  Result<Decoder> decoder = Decoder::random(*config, 1, options);
  WC_CHECK(decoder.has_value());
  const at::NoGradGuard no_gradients;
  fill(*decoder, line["seed"].get<std::uint64_t>());
  return *std::move(decoder);
}

Tensor difference(const Tensor& a, const std::vector<float>& b) {
  return a.detach().flatten().to(at::kFloat) - torch::tensor(b);
}

TEST(HfModelsGolden, LogitsAreThoseOfTransformers) {
  for (const json& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/hf_models.jsonl")) {
    const Decoder decoder = decoder_of(line, {});
    const Sequences sequences(line);
    const Tensor logits = at::linear(decoder.hidden(sequences.ids, sequences.starts), decoder.head());
    EXPECT_LT(difference(logits, line["logits"].get<std::vector<float>>()).abs().max().item<double>(), 1e-4)
        << line["config"].dump();
  }
}

// In BF16 transformers has a gap to its own FP32. Ours may be twice as far from that FP32. Over all logits of a line:
// the largest of a few logits is a matter of luck.
TEST(HfModelsGolden, NarrowLogitsAreAsNearAsThoseOfTransformers) {
  for (const json& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/hf_models.jsonl")) {
    const Decoder decoder = decoder_of(line, {.dtype = at::kBFloat16});
    const Sequences sequences(line);
    const Tensor logits = at::linear(decoder.hidden(sequences.ids, sequences.starts), decoder.head());
    const auto wide = line["logits"].get<std::vector<float>>();
    const Tensor gap = difference(torch::tensor(line["logits_bf16"].get<std::vector<float>>()), wide);
    EXPECT_LE(difference(logits, wide).norm().item<double>(), 2 * gap.norm().item<double>()) << line["config"].dump();
  }
}

TEST(HfModelsGolden, GradientsAreThoseOfTransformers) {
  for (const json& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/hf_models.jsonl")) {
    Decoder decoder = decoder_of(line, {});
    decoder.set_requires_grad(true);
    const Sequences sequences(line);
    const Tensor logits = at::linear(decoder.hidden(sequences.ids, sequences.starts), decoder.head());
    at::cross_entropy_loss(logits, sequences.targets).backward();
    std::size_t compared = 0;
    for (const Parameter& parameter : decoder.parameters()) {
      const Tensor gradient = parameter.tensor.grad();
      if (!line["gradients"].contains(parameter.name)) {
        EXPECT_TRUE(!gradient.defined() || gradient.abs().max().item<double>() == 0) << parameter.name;
        continue;
      }
      // An expert that no token chose: transformers says 0, we say nothing.
      const Tensor flat = (gradient.defined() ? gradient : at::zeros_like(parameter.tensor)).flatten();
      const auto expected = line["gradients"][parameter.name].get<std::vector<double>>();
      const double tolerance = 1e-3 * expected[0] + 1e-6;
      EXPECT_NEAR(flat.norm().item<double>(), expected[0], tolerance) << parameter.name << line["config"].dump();
      const std::int64_t step = std::max<std::int64_t>(1, flat.numel() / 4);
      for (std::size_t i = 1; i < expected.size(); ++i) {
        EXPECT_NEAR(flat[static_cast<std::int64_t>(i - 1) * step].item<double>(), expected[i], tolerance)
            << parameter.name << line["config"].dump();
      }
      ++compared;
    }
    EXPECT_EQ(compared, line["gradients"].size()) << line["config"].dump();
  }
}

}  // namespace
}  // namespace weightcast
