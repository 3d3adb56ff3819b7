#include "trainer/model/model_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/files/posix_file_system.h"
#include "patch/snapshot/safetensors.h"
#include "tests/patch/temp_dir.h"
#include "tests/trainer/model/tiny_configs.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

/// The tensors of a config in one dtype, with bytes that differ from tensor to tensor.
struct FakeWeights {
  explicit FakeWeights(const Json& json, const std::string& dtype = "F32") {
    const Result<ModelConfig> config = parse_model_config(json.dump());
    WC_CHECK(config.has_value());
    for (const TensorSpec& spec : tensor_specs(*config)) {
      TensorInfo info;
      info.name = spec.name;
      info.dtype = dtype;
      info.shape.assign(spec.shape.begin(), spec.shape.end());
      info.size_bytes = static_cast<std::uint64_t>(spec.elements()) * (dtype_bits(dtype) / 8);
      bytes[info.name].assign(info.size_bytes, std::byte(tensors.size() + 1));
      tensors.push_back(std::move(info));
    }
  }
  [[nodiscard]] TensorBytes bytes_of() const {
    return [this](const TensorInfo& info) -> Result<Bytes> { return Bytes(bytes.at(info.name)); };
  }

  std::vector<TensorInfo> tensors;
  std::map<std::string, std::vector<std::byte>> bytes;
};

std::string content(const std::filesystem::path& path) {
  PosixFileSystem files;
  return read_file(files, path, 1 << 20).value();
}

/// The files of a directory by name.
std::map<std::string, std::string> contents(const std::filesystem::path& directory) {
  std::map<std::string, std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    result[entry.path().filename()] = content(entry.path());
  }
  return result;
}

struct ModelFilesTest : ::testing::Test {
  Json json = tiny_config("Qwen3ForCausalLM");
  FakeWeights weights{json};
  TempDir temp;
  PosixFileSystem files;

  void write(const std::string& name, std::uint64_t shard_bytes_max = kShardBytesMax) {
    const Status written = write_new_model(files, temp.file(name), weights.tensors, weights.bytes_of(),
                                           {{"config.json", json.dump()}, {"tokenizer.json", "{}\n"}}, shard_bytes_max);
    ASSERT_TRUE(written.has_value()) << written.error().detail;
  }
  void expect_refused(const std::string& name, Errc code, const std::string& words) {
    const Result<ModelFiles> model = ModelFiles::open(files, temp.file(name));
    ASSERT_FALSE(model.has_value());
    EXPECT_EQ(model.error().code, code) << model.error().detail;
    EXPECT_THAT(model.error().detail, HasSubstr(words));
  }
};

TEST_F(ModelFilesTest, OpensWhatWasWritten) {
  write("model");
  const Result<ModelFiles> model = ModelFiles::open(files, temp.file("model"));
  ASSERT_TRUE(model.has_value()) << model.error().detail;
  EXPECT_EQ(model->config.vocab_size, 48);
  EXPECT_EQ(model->snapshot.tensors().size(), weights.tensors.size());
}

TEST_F(ModelFilesTest, DividesWeightsIntoShards) {
  write("model", 6000);
  std::vector<std::string> names;
  for (const auto& [name, text] : contents(temp.file("model"))) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("config.json", "model-00001-of-00006.safetensors",
                                            "model-00002-of-00006.safetensors", "model-00003-of-00006.safetensors",
                                            "model-00004-of-00006.safetensors", "model-00005-of-00006.safetensors",
                                            "model-00006-of-00006.safetensors", "model.safetensors.index.json",
                                            "tokenizer.json"));
  const Result<ModelFiles> model = ModelFiles::open(files, temp.file("model"));
  ASSERT_TRUE(model.has_value()) << model.error().detail;
  for (const TensorInfo& info : model->snapshot.tensors()) {
    std::vector<std::byte> bytes(info.size_bytes);
    ASSERT_TRUE(model->snapshot.read_at(info.offset_bytes, bytes).has_value());
    EXPECT_EQ(bytes, weights.bytes.at(info.name)) << info.name;
  }
}

TEST_F(ModelFilesTest, WritesTheSameBytesWhereNothingChanged) {
  for (const std::uint64_t shard_bytes_max : {kShardBytesMax, std::uint64_t{6000}}) {
    const std::string name = fmt::format("model{}", shard_bytes_max);
    write(name, shard_bytes_max);
    const Result<ModelFiles> model = ModelFiles::open(files, temp.file(name));
    ASSERT_TRUE(model.has_value()) << model.error().detail;
    ASSERT_TRUE(write_model_like(files, model->snapshot, temp.file(name + "-copy"), weights.bytes_of()).has_value());
    EXPECT_EQ(contents(temp.file(name)), contents(temp.file(name + "-copy")));
  }
}

TEST_F(ModelFilesTest, ChangesOnlyTheTensorThatChanged) {
  write("model", 6000);
  const Result<ModelFiles> model = ModelFiles::open(files, temp.file("model"));
  ASSERT_TRUE(model.has_value());
  weights.bytes.at("model.norm.weight")[5] = std::byte{0x77};
  ASSERT_TRUE(write_model_like(files, model->snapshot, temp.file("changed"), weights.bytes_of()).has_value());
  const auto before = contents(temp.file("model"));
  const auto after = contents(temp.file("changed"));
  ASSERT_EQ(before.size(), after.size());
  std::size_t bytes_changed = 0;
  for (const auto& [name, text] : before) {
    ASSERT_EQ(text.size(), after.at(name).size()) << name;
    for (std::size_t i = 0; i < text.size(); ++i) bytes_changed += text[i] != after.at(name)[i];
  }
  EXPECT_EQ(bytes_changed, 1);
}

TEST_F(ModelFilesTest, LeavesNothingAfterAnError) {
  write("model");
  const Result<ModelFiles> model = ModelFiles::open(files, temp.file("model"));
  ASSERT_TRUE(model.has_value());
  weights.bytes.at("model.norm.weight").pop_back();
  const Status written = write_model_like(files, model->snapshot, temp.file("copy"), weights.bytes_of());
  ASSERT_FALSE(written.has_value());
  EXPECT_THAT(written.error().detail, HasSubstr("model.norm.weight"));
  EXPECT_FALSE(std::filesystem::exists(temp.file("copy")));
  EXPECT_FALSE(std::filesystem::exists(temp.file("copy.tmp")));
  const Status again = write_model_like(files, model->snapshot, temp.file("model"), weights.bytes_of());
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Errc::kAlreadyExists);
}

TEST_F(ModelFilesTest, NamesTensorsThatDoNotFitTheConfig) {
  json["hidden_size"] = 32;  // all but the heads' norms
  write("shape");
  expect_refused("shape", Errc::kInvalidArgument,
                 "of another shape ('model.embed_tokens.weight' is [48, 16], config.json makes it [48, 32]");
  json = tiny_config("Qwen3ForCausalLM");
  json["num_hidden_layers"] = 3;
  write("missing");
  expect_refused("missing", Errc::kInvalidArgument, "11 missing ('model.layers.2.self_attn.q_proj.weight'; ");
  json["num_hidden_layers"] = 1;
  write("extra");
  expect_refused("extra", Errc::kInvalidArgument, "11 that the model does not have (");
  json = tiny_config("Qwen3ForCausalLM");
  weights = FakeWeights(json, "I32");
  write("dtype");
  expect_refused("dtype", Errc::kInvalidArgument,
                 "25 of a dtype that is not F32, BF16 or F16 ('model.embed_tokens.weight' is I32");
}

// As older releases of transformers stored Llama models.
TEST_F(ModelFilesTest, LeavesStoredFrequenciesAsTheyAre) {
  json = tiny_config("LlamaForCausalLM");
  weights = FakeWeights(json);
  for (int layer = 0; layer < 2; ++layer) {
    TensorInfo info;
    info.name = fmt::format("model.layers.{}.self_attn.rotary_emb.inv_freq", layer);
    info.dtype = "F32";
    info.shape = {2};
    info.size_bytes = 8;
    weights.bytes[info.name].assign(8, std::byte{0x3f});
    weights.tensors.push_back(std::move(info));
  }
  write("model", 6000);
  const Result<ModelFiles> model = ModelFiles::open(files, temp.file("model"));
  ASSERT_TRUE(model.has_value()) << model.error().detail;
  std::erase_if(weights.bytes, [](const auto& one) { return is_rope_buffer(one.first); });
  const Status written = write_model_like(files, model->snapshot, temp.file("copy"), weights.bytes_of());
  ASSERT_TRUE(written.has_value()) << written.error().detail;
  EXPECT_EQ(contents(temp.file("model")), contents(temp.file("copy")));
}

TEST_F(ModelFilesTest, TakesATiedHeadThatIsStoredToo) {
  json["tie_word_embeddings"] = true;
  write("model");
  EXPECT_TRUE(ModelFiles::open(files, temp.file("model")).has_value());
}

TEST_F(ModelFilesTest, RefusesATruncatedShard) {
  write("model", 6000);
  const std::string shard = temp.file("model/model-00002-of-00006.safetensors");
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  expect_refused("model", Errc::kCorrupt, "model-00002-of-00006.safetensors");
  std::filesystem::remove(shard);
  expect_refused("model", Errc::kNotFound, "model-00002-of-00006.safetensors");
}

TEST_F(ModelFilesTest, NamesTheConfigThatIsMissingOrWrong) {
  std::filesystem::create_directory(temp.file("empty"));
  expect_refused("empty", Errc::kNotFound, "config.json");
  json["vocab_size"] = -1;
  write("wrong");
  expect_refused("wrong", Errc::kInvalidArgument, "wrong/config.json: 'vocab_size' is -1");
}

}  // namespace
}  // namespace weightcast
