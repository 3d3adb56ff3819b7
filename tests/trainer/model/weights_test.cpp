#include "trainer/model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/files/posix_file_system.h"
#include "tests/patch/temp_dir.h"
#include "tests/trainer/model/tiny_configs.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;

std::map<std::string, std::string> contents(const std::filesystem::path& directory) {
  PosixFileSystem files;
  std::map<std::string, std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    result[entry.path().filename()] = read_file(files, entry.path(), 1 << 20).value();
  }
  return result;
}

ModelFiles open_model(FileSystem& files, const std::string& directory) {
  Result<ModelFiles> model = ModelFiles::open(files, directory);
  WC_CHECK(model.has_value());
  return *std::move(model);
}

Decoder load(FileSystem& files, const std::string& directory, const DecoderOptions& options = {}) {
  Result<Decoder> decoder = Decoder::load(open_model(files, directory), options);
  WC_CHECK(decoder.has_value());
  return *std::move(decoder);
}

/// Models that transformers wrote, in one file with a tied head, and in shards.
struct StoredModels : ::testing::TestWithParam<const char*> {
  [[nodiscard]] static std::string directory() { return std::string(WEIGHTCAST_MODEL_DATA "/") + GetParam(); }
  TempDir temp;
  PosixFileSystem files;
};
INSTANTIATE_TEST_SUITE_P(Weights, StoredModels,
                         ::testing::Values("tied_qwen2", "sharded_qwen3", "tied_llama", "sharded_mistral"));

TEST_P(StoredModels, AreWrittenByteForByte) {
  for (const torch::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const ModelFiles model = open_model(files, directory());
    const Decoder decoder = load(files, directory(), {.dtype = dtype});
    const std::string copy = temp.file(std::string("copy-") + std::string(dtype_name(dtype)));
    const Status written = write_weights_like(files, model.snapshot, copy, decoder.parameters());
    ASSERT_TRUE(written.has_value()) << written.error().detail;
    EXPECT_EQ(contents(copy), contents(directory()));
  }
}

TEST_P(StoredModels, ChangeWhereAParameterChanged) {
  const ModelFiles model = open_model(files, directory());
  const Decoder decoder = load(files, directory());
  const at::NoGradGuard no_gradients;
  // BF16 has 8 bits of fraction: 1 + 2^-9 rounds to 1, which is even, and 1 + 3 * 2^-9 to 1 + 2^-7.
  decoder.parameters()[1].tensor.fill_(1 + 1.0 / 512);
  decoder.parameters()[1].tensor[0].fill_(1 + 3.0 / 512);
  ASSERT_TRUE(write_weights_like(files, model.snapshot, temp.file("copy"), decoder.parameters()).has_value());
  const Decoder again = load(files, temp.file("copy"));
  for (std::size_t i = 0; i < again.parameters().size(); ++i) {
    const Tensor expected = decoder.parameters()[i].tensor.to(at::kBFloat16).to(at::kFloat);
    EXPECT_TRUE(at::equal(again.parameters()[i].tensor, expected)) << again.parameters()[i].name;
  }
  EXPECT_EQ(again.parameters()[1].tensor[0][0].item<float>(), 1 + 1.0F / 128);
  EXPECT_EQ(again.parameters()[1].tensor[1][0].item<float>(), 1);
}

TEST(Weights, OfANewModelAreReadBack) {
  TempDir temp;
  PosixFileSystem files;
  const nlohmann::json json = tiny_config("Qwen3MoeForCausalLM");
  const Result<ModelConfig> config = parse_model_config(json.dump());
  ASSERT_TRUE(config.has_value());
  for (const torch::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Result<Decoder> decoder = Decoder::random(*config, 3, {.dtype = dtype});
    ASSERT_TRUE(decoder.has_value());
    const std::string directory = temp.file(dtype_name(dtype));
    const Status written =
        write_new_weights(files, directory, decoder->parameters(), {{"config.json", json.dump()}}, 4000);
    ASSERT_TRUE(written.has_value()) << written.error().detail;
    const Decoder again = load(files, directory, {.dtype = dtype});
    for (std::size_t i = 0; i < again.parameters().size(); ++i) {
      EXPECT_EQ(again.parameters()[i].name, decoder->parameters()[i].name);
      EXPECT_TRUE(at::equal(again.parameters()[i].tensor, decoder->parameters()[i].tensor));
    }
  }
}

TEST(Weights, StoredAsF16AreWrittenByteForByte) {
  TempDir temp;
  PosixFileSystem files;
  const nlohmann::json json = tiny_config("Qwen2ForCausalLM");
  const Result<ModelConfig> config = parse_model_config(json.dump());
  ASSERT_TRUE(config.has_value());
  const Result<Decoder> decoder = Decoder::random(*config, 3);
  ASSERT_TRUE(decoder.has_value());
  std::vector<Parameter> halves = decoder->parameters();
  for (Parameter& parameter : halves) parameter.tensor = parameter.tensor.to(at::kHalf);
  ASSERT_TRUE(write_new_weights(files, temp.file("half"), halves, {{"config.json", json.dump()}}).has_value());
  const ModelFiles model = open_model(files, temp.file("half"));
  EXPECT_EQ(model.snapshot.tensors().front().dtype, "F16");
  const Decoder loaded = load(files, temp.file("half"));
  ASSERT_TRUE(write_weights_like(files, model.snapshot, temp.file("copy"), loaded.parameters()).has_value());
  EXPECT_EQ(contents(temp.file("copy")), contents(temp.file("half")));
}

TEST(Weights, TensorsThatAreNotFiniteAreNamed) {
  TempDir temp;
  PosixFileSystem files;
  const std::string source = std::string(WEIGHTCAST_MODEL_DATA "/sharded_qwen3");
  const Decoder decoder = load(files, source);
  const at::NoGradGuard no_gradients;
  decoder.parameters()[4].tensor[0][1] = std::numeric_limits<float>::quiet_NaN();
  decoder.parameters()[4].tensor[0][2] = std::numeric_limits<float>::infinity();
  const ModelFiles model = open_model(files, source);
  ASSERT_TRUE(write_weights_like(files, model.snapshot, temp.file("nan"), decoder.parameters()).has_value());
  const Result<Decoder> damaged = Decoder::load(open_model(files, temp.file("nan")));
  ASSERT_FALSE(damaged.has_value());
  EXPECT_EQ(damaged.error().code, Errc::kInvalidArgument);
  EXPECT_THAT(damaged.error().detail,
              HasSubstr("tensor 'model.layers.0.self_attn.o_proj.weight': 2 of its elements are NaN or infinite"));
}

TEST(Weights, ATiedHeadThatIsStoredIsTheEmbedding) {
  TempDir temp;
  PosixFileSystem files;
  nlohmann::json json = tiny_config("Qwen2ForCausalLM");
  const Result<ModelConfig> untied = parse_model_config(json.dump());
  json["tie_word_embeddings"] = true;
  const std::string tied = json.dump();
  const Result<Decoder> decoder = Decoder::random(*untied, 1);
  ASSERT_TRUE(decoder.has_value());
  std::vector<Parameter> parameters = decoder->parameters();
  ASSERT_TRUE(write_new_weights(files, temp.file("other"), parameters, {{"config.json", tied}}).has_value());
  const Result<Decoder> other = Decoder::load(open_model(files, temp.file("other")));
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().detail, HasSubstr("'lm_head.weight': config.json ties it to the embedding"));

  parameters.back().tensor.copy_(parameters.front().tensor);
  ASSERT_TRUE(write_new_weights(files, temp.file("same"), parameters, {{"config.json", tied}}).has_value());
  const ModelFiles model = open_model(files, temp.file("same"));
  const Result<Decoder> same = Decoder::load(model);
  ASSERT_TRUE(same.has_value()) << same.error().detail;
  ASSERT_TRUE(write_weights_like(files, model.snapshot, temp.file("copy"), same->parameters()).has_value());
  EXPECT_EQ(contents(temp.file("copy")), contents(temp.file("same")));
}

TEST(Weights, TooMuchMemoryIsAnError) {
  std::ifstream policy("/proc/sys/vm/overcommit_memory");
  if (policy.get() == '1') GTEST_SKIP() << "this host promises memory that it does not have";
  nlohmann::json json = tiny_config("Qwen3ForCausalLM");
  for (const char* name : {"hidden_size", "intermediate_size"}) json[name] = 1 << 20;
  json["vocab_size"] = 1 << 24;
  const Result<ModelConfig> config = parse_model_config(json.dump());
  ASSERT_TRUE(config.has_value()) << config.error().detail;
  const Result<Decoder> decoder = Decoder::random(*config, 1);
  ASSERT_FALSE(decoder.has_value());
  EXPECT_EQ(decoder.error().code, Errc::kTooLarge);
}

}  // namespace
}  // namespace weightcast
