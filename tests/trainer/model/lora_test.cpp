#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files/posix_file_system.h"
#include "tests/patch/temp_dir.h"
#include "tests/trainer/model/tiny_configs.h"
#include "tests/trainer/model/write_adapter.h"
#include "trainer/model/adapter_files.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;

const LoraConfig kAll{.rank = 2,
                      .alpha = 8,
                      .target_modules = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}};

Decoder random_decoder(const DecoderOptions& options = {}) {
  const Result<ModelConfig> config = parse_model_config(tiny_config("Qwen3MoeForCausalLM").dump());
  WC_CHECK(config.has_value());
  Result<Decoder> decoder = Decoder::random(*config, 7, options);
  WC_CHECK(decoder.has_value());
  const at::NoGradGuard no_gradients;
  for (const Parameter& parameter : decoder->parameters()) {
    if (parameter.tensor.dim() == 2) parameter.tensor.mul_(10);
  }
  return *std::move(decoder);
}

Tensor hidden(const Decoder& decoder) {
  const std::vector<std::int64_t> starts{0, 11};
  const Tensor ids = at::randint(0, 48, {40}, at::detail::createCPUGenerator(3), at::TensorOptions(at::kLong));
  return decoder.hidden(ids, starts);
}

void fill_adapter(const Decoder& decoder) {
  const at::NoGradGuard no_gradients;
  std::uint64_t seed = 1;
  for (const Parameter& parameter : decoder.adapter_parameters()) {
    parameter.tensor.normal_(0, 0.3, at::detail::createCPUGenerator(seed++));
  }
}

TEST(Lora, ChangesNothingAtFirst) {
  Decoder decoder = random_decoder();
  const Tensor before = hidden(decoder);
  ASSERT_TRUE(decoder.add_adapter(kAll, 5).has_value());
  EXPECT_TRUE(at::equal(hidden(decoder), before));
  for (const Parameter& parameter : decoder.adapter_parameters()) {
    const bool is_a = parameter.name.find("lora_A") != std::string::npos;
    const double bound = 1 / std::sqrt(static_cast<double>(parameter.tensor.size(1)));
    const double largest = parameter.tensor.abs().max().item<double>();
    EXPECT_TRUE(is_a ? largest > 0.7 * bound && largest <= bound : largest == 0) << parameter.name;
  }
  fill_adapter(decoder);
  EXPECT_FALSE(at::equal(hidden(decoder), before));
}

TEST(Lora, IsTrainedAlone) {
  Decoder decoder = random_decoder();
  decoder.set_requires_grad(true);
  ASSERT_TRUE(decoder.add_adapter(kAll, 5).has_value());
  decoder.set_requires_grad(true);
  EXPECT_EQ(decoder.trained_parameters().size(), decoder.adapter_parameters().size());
  for (const Parameter& parameter : decoder.parameters()) EXPECT_FALSE(parameter.tensor.requires_grad());
  for (const Parameter& parameter : decoder.adapter_parameters()) EXPECT_TRUE(parameter.tensor.requires_grad());
  const Status again = decoder.add_adapter(kAll, 5);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Errc::kAlreadyExists);
}

TEST(Lora, DropoutFollowsFromItsSeed) {
  LoraConfig config = kAll;
  config.dropout = 0.5;
  Decoder decoder = random_decoder();
  ASSERT_TRUE(decoder.add_adapter(config, 5).has_value());
  fill_adapter(decoder);
  const Tensor whole = hidden(decoder);
  decoder.set_dropout(1);
  const Tensor first = hidden(decoder);
  EXPECT_TRUE(at::equal(hidden(decoder), first));
  EXPECT_FALSE(at::equal(first, whole));
  decoder.set_dropout(2);
  EXPECT_FALSE(at::equal(hidden(decoder), first));
  decoder.set_dropout(std::nullopt);
  EXPECT_TRUE(at::equal(hidden(decoder), whole));
}

// One adapter on the last matrix before the residual sum: the mean over many masks is the output without dropout.
TEST(Lora, DropoutKeepsTheMean) {
  nlohmann::json json = tiny_config("Qwen2ForCausalLM");
  json["num_hidden_layers"] = 1;
  Result<Decoder> decoder = Decoder::random(*parse_model_config(json.dump()), 7);
  ASSERT_TRUE(decoder.has_value());
  ASSERT_TRUE(
      decoder->add_adapter({.rank = 2, .alpha = 2, .dropout = 0.5, .target_modules = {"o_proj"}}, 5).has_value());
  fill_adapter(*decoder);
  const std::vector<std::int64_t> starts{0};
  const Tensor ids = at::ones({1}, at::TensorOptions(at::kLong));
  // Norms make the output nonlinear, but a small change of it is nearly linear.
  for (const Parameter& parameter : decoder->adapter_parameters()) parameter.tensor.mul_(0.1);
  const Tensor whole = decoder->hidden(ids, starts);
  Tensor sum = at::zeros_like(whole);
  double spread = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    decoder->set_dropout(seed);
    const Tensor found = decoder->hidden(ids, starts);
    sum += found;
    spread = std::max(spread, (found - whole).abs().max().item<double>());
  }
  EXPECT_LT((sum / 2000 - whole).abs().max().item<double>(), 0.1 * spread);
}

TEST(Lora, CheckpointingLeavesOutTheSame) {
  LoraConfig config = kAll;
  config.dropout = 0.3;
  std::vector<std::vector<Tensor>> gradients;
  for (const bool checkpointing : {false, true}) {
    Decoder decoder = random_decoder({.activation_checkpointing = checkpointing});
    ASSERT_TRUE(decoder.add_adapter(config, 5).has_value());
    fill_adapter(decoder);
    decoder.set_requires_grad(true);
    decoder.set_dropout(9);
    hidden(decoder).square().sum().backward();
    gradients.emplace_back();
    for (const Parameter& parameter : decoder.adapter_parameters()) {
      ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
      gradients.back().push_back(parameter.tensor.grad());
    }
  }
  for (std::size_t i = 0; i < gradients[0].size(); ++i) EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
}

TEST(Lora, FilesThatDoNotFitAreNamed) {
  TempDir temp;
  PosixFileSystem files;
  Decoder decoder = random_decoder();
  ASSERT_TRUE(decoder.add_adapter(kAll, 5).has_value());
  ASSERT_TRUE(write_adapter(files, temp.file("adapter"), decoder, "base").has_value());

  const auto expect_refused = [&](const std::string& words) {
    Decoder other = random_decoder();
    const Status loaded = load_adapter(files, temp.file("adapter"), other);
    ASSERT_FALSE(loaded.has_value());
    EXPECT_THAT(loaded.error().detail, HasSubstr(words));
    EXPECT_FALSE(other.adapter().has_value());
  };
  const auto set = [&](const char* name, const nlohmann::json& value) {
    const std::string path = temp.file("adapter/adapter_config.json");
    nlohmann::json json = nlohmann::json::parse(read_file(files, path, 1 << 16).value());
    json[name] = value;
    std::ofstream(path) << json.dump();
  };
  set("r", 3);
  expect_refused(
      "of another shape ('base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight' is [2, 16], "
      "adapter_config.json makes it [3, 16]");
  set("r", 2);
  set("target_modules", {"q_proj"});
  expect_refused("that the model does not have (");
  set("target_modules", {"q_prox"});
  expect_refused("the nearest is 'q_proj'");
  set("target_modules", kAll.target_modules);
  std::filesystem::resize_file(temp.file("adapter/adapter_model.safetensors"), 5000);
  expect_refused("adapter_model.safetensors");
}

}  // namespace
}  // namespace weightcast
