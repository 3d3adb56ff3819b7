// Logits, gradients and files of PEFT's LoRA (tests/oracles/hf_lora.py).

#include <gtest/gtest.h>

#include <filesystem>

#include "base/files/posix_file_system.h"
#include "tests/golden_lines.h"
#include "tests/patch/temp_dir.h"
#include "tests/trainer/model/golden_models.h"
#include "tests/trainer/model/write_adapter.h"
#include "trainer/model/adapter_files.h"
#include "trainer/model/lora_files.h"
#include "worker/engine/cpu_model.h"

namespace weightcast {
namespace {

using nlohmann::json;
using torch::Tensor;

std::string from_base64(const std::string& text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bits = (bits << 6) | static_cast<std::uint32_t>(digits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count));
  }
  return bytes;
}

/// A directory with the adapter that PEFT wrote.
void write_adapter_of(const json& line, const std::string& directory) {
  std::filesystem::create_directory(directory);
  std::ofstream(directory + "/adapter_config.json") << line["adapter_config"].dump();
  std::ofstream(directory + "/adapter_model.safetensors", std::ios::binary)
      << from_base64(line["adapter_model"].get<std::string>());
}

TEST(LoraGolden, ComputesWhatPeftComputes) {
  PosixFileSystem files;
  for (const json& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/hf_lora.jsonl")) {
    TempDir temp;
    write_adapter_of(line, temp.file("adapter"));
    Decoder decoder = golden_decoder(line, {});
    const Status loaded = load_adapter(files, temp.file("adapter"), decoder);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().detail;
    decoder.set_requires_grad(true);
    const GoldenSequences sequences(line);
    const Tensor logits = at::linear(decoder.hidden(sequences.ids, sequences.starts), decoder.head());
    EXPECT_LT(distance_max(logits, line["logits"]), 1e-4) << line["config"].dump();
    at::cross_entropy_loss(logits, sequences.targets).backward();
    expect_gradients(decoder.adapter_parameters(), line);
    for (const Parameter& parameter : decoder.parameters()) EXPECT_FALSE(parameter.tensor.grad().defined());

    // Merged, a plain model computes the same.
    Decoder plain = golden_decoder(line, {});
    const at::NoGradGuard no_gradients;
    const std::vector<Parameter> merged = decoder.merged_parameters();
    for (std::size_t i = 0; i < merged.size(); ++i) plain.parameters()[i].tensor.copy_(merged[i].tensor);
    const Tensor after = at::linear(plain.hidden(sequences.ids, sequences.starts), plain.head());
    EXPECT_LT(distance_max(after, line["logits"]), 1e-4) << line["config"].dump();
  }
}

/// By the worker's own kernels, which check what a server computes with.
TEST(LoraGolden, TheEngineComputesWhatPeftComputes) {
  PosixFileSystem files;
  for (const json& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/hf_lora.jsonl")) {
    TempDir temp;
    write_adapter_of(line, temp.file("adapter"));
    const Decoder decoder = golden_decoder(line, {});
    const LoraFiles lora = LoraFiles::open(files, temp.file("adapter"), decoder.config()).value();
    std::vector<NamedTensor> tensors = map_tensors(lora.snapshot).value();
    for (const Parameter& parameter : decoder.parameters()) {
      const auto* bytes = static_cast<const std::byte*>(parameter.tensor.data_ptr());
      tensors.push_back({parameter.name, "F32", Bytes(bytes, parameter.tensor.nbytes())});
    }
    const auto weights = EngineWeights::make(decoder.config(), tensors, nullptr, &lora.config);
    ASSERT_TRUE(weights.has_value()) << weights.error().message();
    const auto model = make_cpu_model(*weights, {.blocks = 8}).value();
    std::vector<float> logits;
    for (const json& sequence : line["sequences"]) {
      const auto ids = sequence.get<std::vector<TokenId>>();
      const std::vector<BlockId> blocks{0, 1, 2, 3, 4, 5, 6, 7};
      const SequenceStep step{ids, 0, blocks, SequenceStep::Logits::kAll};
      model->forward({&step, 1}, [&](std::size_t, std::size_t, std::span<float> of_token) {
        logits.insert(logits.end(), of_token.begin(), of_token.end());
      });
    }
    EXPECT_LT(distance_max(torch::tensor(logits), line["logits"]), 1e-4) << line["config"].dump();
  }
}

TEST(LoraGolden, WritesTheBytesThatPeftWrites) {
  PosixFileSystem files;
  for (const json& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/hf_lora.jsonl")) {
    TempDir temp;
    write_adapter_of(line, temp.file("adapter"));
    Decoder decoder = golden_decoder(line, {});
    ASSERT_TRUE(load_adapter(files, temp.file("adapter"), decoder).has_value());
    ASSERT_TRUE(write_adapter(files, temp.file("copy"), decoder, "base").has_value());
    EXPECT_EQ(read_file(files, temp.file("copy/adapter_model.safetensors"), 1 << 20).value(),
              from_base64(line["adapter_model"].get<std::string>()));
    // The configuration says the same to us; hf_lora.py has PEFT read one of ours.
    Decoder again = golden_decoder(line, {});
    ASSERT_TRUE(load_adapter(files, temp.file("copy"), again).has_value());
    EXPECT_EQ(again.adapter()->scale(), decoder.adapter()->scale());
  }
}

}  // namespace
}  // namespace weightcast
