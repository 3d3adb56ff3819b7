#include "trainer/model/lora_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/posix_file_system.h"
#include "tests/trainer/model/tiny_configs.h"

namespace weightcast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const Json kGood{{"peft_type", "LORA"},
                 {"r", 4},
                 {"lora_alpha", 16},
                 {"lora_dropout", 0.05},
                 {"target_modules", {"q_proj", "v_proj"}},
                 {"bias", "none"},
                 {"use_dora", false},
                 {"modules_to_save", nullptr},
                 {"rank_pattern", Json::object()},
                 {"init_lora_weights", true}};

void expect_refused(const char* name, const Json& value, Errc code, const std::string& words) {
  Json json = kGood;
  json[name] = value;
  const Result<LoraConfig> config = parse_lora_config(json.dump());
  ASSERT_FALSE(config.has_value()) << json.dump();
  EXPECT_EQ(config.error().code, code) << config.error().detail;
  EXPECT_THAT(config.error().detail, HasSubstr(words));
}

TEST(LoraConfig, ReadsWhatPeftWrites) {
  const Result<LoraConfig> config = parse_lora_config(kGood.dump());
  ASSERT_TRUE(config.has_value()) << config.error().detail;
  EXPECT_EQ(config->rank, 4);
  EXPECT_EQ(config->scale(), 4);
  EXPECT_EQ(config->dropout, 0.05);
  EXPECT_THAT(config->target_modules, ElementsAre("q_proj", "v_proj"));
  Json json = kGood;
  json["use_rslora"] = true;
  json["target_modules"] = "all-linear";
  const Result<LoraConfig> other = parse_lora_config(json.dump());
  ASSERT_TRUE(other.has_value()) << other.error().detail;
  EXPECT_EQ(other->scale(), 8);
  EXPECT_EQ(other->target_modules.size(), 7);
}

TEST(LoraConfig, NamesWhatIsWrong) {
  expect_refused("r", 0, Errc::kInvalidArgument, "'r'");
  expect_refused("r", nullptr, Errc::kInvalidArgument, "'r' is null");
  expect_refused("lora_alpha", "16", Errc::kInvalidArgument, "'lora_alpha'");
  expect_refused("lora_alpha", -1, Errc::kInvalidArgument, "'lora_alpha'");
  expect_refused("lora_dropout", 1, Errc::kInvalidArgument, "'lora_dropout'");
  expect_refused("use_rslora", 1, Errc::kInvalidArgument, "'use_rslora'");
  expect_refused("target_modules", nullptr, Errc::kInvalidArgument, "'target_modules' is missing");
  expect_refused("target_modules", Json::array(), Errc::kInvalidArgument, "names no module");
  expect_refused("target_modules", {"q_prof"}, Errc::kInvalidArgument, "the nearest is 'q_proj'");
  expect_refused("target_modules", {"lm_head"}, Errc::kInvalidArgument, "'lm_head'");
  expect_refused("target_modules", {3}, Errc::kInvalidArgument, "'target_modules' has 3");
  EXPECT_FALSE(parse_lora_config("[]").has_value());
}

TEST(LoraConfig, RefusesKindsOfAdaptersThatItDoesNotCompute) {
  expect_refused("peft_type", "IA3", Errc::kUnsupported, "'peft_type' is \"IA3\"");
  expect_refused("use_dora", true, Errc::kUnsupported, "'use_dora'");
  expect_refused("bias", "all", Errc::kUnsupported, "'bias'");
  expect_refused("rank_pattern", {{"q_proj", 8}}, Errc::kUnsupported, "'rank_pattern'");
  expect_refused("modules_to_save", {"lm_head"}, Errc::kUnsupported, "'modules_to_save'");
  expect_refused("layers_to_transform", {1}, Errc::kUnsupported, "'layers_to_transform'");
  expect_refused("init_lora_weights", "pissa", Errc::kUnsupported, "'init_lora_weights'");
  expect_refused("target_modules", ".*_proj", Errc::kUnsupported, "'target_modules'");
}

TEST(LoraConfig, IsWrittenAsPeftReadsIt) {
  LoraConfig config{
      .rank = 4, .alpha = 16, .dropout = 0.25, .use_rslora = true, .target_modules = {"q_proj", "down_proj"}};
  PosixFileSystem files;
  const std::string text = lora_config_json(config, "Qwen/Qwen3-0.6B");
  // hf_lora.py has PEFT read this file.
  EXPECT_EQ(text, read_file(files, WEIGHTCAST_MODEL_DATA "/adapter_config/adapter_config.json", 1 << 16).value());
  const Result<LoraConfig> again = parse_lora_config(text);
  ASSERT_TRUE(again.has_value()) << again.error().detail;
  EXPECT_EQ(again->scale(), config.scale());
  EXPECT_EQ(again->dropout, config.dropout);
  EXPECT_EQ(again->target_modules, config.target_modules);
}

TEST(LoraConfig, TargetsMatricesByTheEndOfTheirNames) {
  const Result<ModelConfig> model = parse_model_config(tiny_config("Qwen3MoeForCausalLM").dump());
  ASSERT_TRUE(model.has_value());
  const std::vector<LoraTarget> targets = lora_targets(*model, {.rank = 3, .target_modules = {"k_proj", "down_proj"}});
  ASSERT_EQ(targets.size(), 2 * (1 + 4));
  EXPECT_EQ(targets[0].module, "model.layers.0.self_attn.k_proj");
  EXPECT_EQ(targets[0].a.name, "base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight");
  EXPECT_THAT(targets[0].a.shape, ElementsAre(3, 16));
  EXPECT_THAT(targets[0].b.shape, ElementsAre(16, 3));
  EXPECT_EQ(targets[1].module, "model.layers.0.mlp.experts.0.down_proj");
  EXPECT_THAT(targets[1].a.shape, ElementsAre(3, 8));
}

}  // namespace
}  // namespace weightcast
