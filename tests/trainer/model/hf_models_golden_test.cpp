// Logits and gradients of Hugging Face's transformers (tests/oracles/hf_models.py).

#include <gtest/gtest.h>

#include "tests/golden_lines.h"
#include "tests/trainer/model/golden_models.h"

namespace weightcast {
namespace {

using nlohmann::json;
using torch::Tensor;

TEST(HfModelsGolden, LogitsAreThoseOfTransformers) {
  for (const json& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/hf_models.jsonl")) {
    const Decoder decoder = golden_decoder(line, {});
    const GoldenSequences sequences(line);
    const Tensor logits = at::linear(decoder.hidden(sequences.ids, sequences.starts), decoder.head());
    // The file has six digits.
    EXPECT_LT(distance_max(logits, line["logits"]), 1e-5 * (1 + logits.abs().max().item<double>()))
        << line["config"].dump();
  }
}

// In BF16 transformers has a gap to its own FP32. Ours may be twice as far from that FP32. Over all logits of a line:
// the largest of a few logits is a matter of luck.
TEST(HfModelsGolden, NarrowLogitsAreAsNearAsThoseOfTransformers) {
  for (const json& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/hf_models.jsonl")) {
    const Decoder decoder = golden_decoder(line, {.dtype = at::kBFloat16});
    const GoldenSequences sequences(line);
    const Tensor logits = at::linear(decoder.hidden(sequences.ids, sequences.starts), decoder.head());
    const auto wide = line["logits"].get<std::vector<float>>();
    const Tensor gap = difference_to(torch::tensor(line["logits_bf16"].get<std::vector<float>>()), wide);
    EXPECT_LE(difference_to(logits, wide).norm().item<double>(), 2 * gap.norm().item<double>())
        << line["config"].dump();
  }
}

TEST(HfModelsGolden, GradientsAreThoseOfTransformers) {
  for (const json& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/hf_models.jsonl")) {
    Decoder decoder = golden_decoder(line, {});
    decoder.set_requires_grad(true);
    const GoldenSequences sequences(line);
    const Tensor logits = at::linear(decoder.hidden(sequences.ids, sequences.starts), decoder.head());
    at::cross_entropy_loss(logits, sequences.targets).backward();
    expect_gradients(decoder.parameters(), line);
  }
}

}  // namespace
}  // namespace weightcast
