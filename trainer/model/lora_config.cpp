#include "trainer/model/lora_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/settings/nearest_name.h"
#include "patch/snapshot/adapter_names.h"
#include "trainer/model/json_fields.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using namespace std::string_view_literals;

constexpr std::int64_t kRankMax = 65536;
constexpr double kAlphaMax = 1e6;

Error refuse(std::string why) {
  return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("{}: {}", kAdapterConfigFile, why));
}
Error unsupported(std::string why) {
  return fail(Errc::kUnsupported, Op::kParse, fmt::format("{}: {}", kAdapterConfigFile, why));
}

/// Members of PEFT's that change the computation, and the only value that this build computes besides null.
Status refuse_unsupported(const JsonFields& fields) {
  const std::array<std::pair<const char*, Json>, 15> members{{{"peft_type", "LORA"},
                                                              {"bias", "none"},
                                                              {"use_dora", false},
                                                              {"lora_bias", false},
                                                              {"fan_in_fan_out", false},
                                                              {"rank_pattern", Json::object()},
                                                              {"alpha_pattern", Json::object()},
                                                              {"modules_to_save", Json::array()},
                                                              {"exclude_modules", Json::array()},
                                                              {"layers_to_transform", Json::array()},
                                                              {"layers_pattern", Json::array()},
                                                              {"trainable_token_indices", Json::array()},
                                                              {"layer_replication", Json::array()},
                                                              {"target_parameters", Json::array()},
                                                              {"use_qalora", false}}};
  for (const auto& [name, computed] : members) {
    const Json* found = fields.find(name);
    if (found != nullptr && *found != computed) {
      return unsupported(
          fmt::format("'{}' is {}; this build computes {} only", name, shown_json(*found), shown_json(computed)));
    }
  }
  // Other ways to begin (pissa, olora, corda, ...) change the model beneath when PEFT loads the adapter.
  if (const Json* init = fields.find("init_lora_weights");
      init != nullptr && !init->is_boolean() && *init != "gaussian") {
    return unsupported(
        fmt::format("'init_lora_weights' is {}; this build knows true, false and \"gaussian\"", shown_json(*init)));
  }
  return {};
}

}  // namespace

double LoraConfig::scale() const {
  return alpha / (use_rslora ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

const std::vector<std::string_view>& lora_target_modules() {
  static const std::vector<std::string_view> modules{"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                     "gate_proj", "up_proj", "down_proj"};
  return modules;
}

Status check_lora_config(const LoraConfig& config) {
  if (config.rank < 1 || config.rank > kRankMax) {
    return refuse(fmt::format("'r' is {}; it is a whole number from 1 to {}", config.rank, kRankMax));
  }
  if (!(config.alpha >= 0 && config.alpha <= kAlphaMax)) {
    return refuse(fmt::format("'lora_alpha' is {}; it is a number from 0 to {}", config.alpha, kAlphaMax));
  }
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    return refuse(fmt::format("'lora_dropout' is {}; it is a number from 0 to 1, and not 1", config.dropout));
  }
  if (config.target_modules.empty()) return refuse("'target_modules' names no module");
  const std::vector<std::string_view>& known = lora_target_modules();
  for (const std::string& module : config.target_modules) {
    if (std::find(known.begin(), known.end(), module) == known.end()) {
      return refuse("'target_modules': " + unknown_name("module that can have an adapter", module, known));
    }
  }
  return {};
}

Result<LoraConfig> parse_lora_config(std::string_view adapter_config_json) {
  const Json json = parse_json(adapter_config_json);
  if (!json.is_object()) return refuse("it is no JSON object");
  const JsonFields fields(json, kAdapterConfigFile);
  WC_TRY(refuse_unsupported(fields));
  LoraConfig config;
  WC_TRY(fields.require("r", 1, kRankMax, config.rank));
  WC_TRY(fields.read("lora_alpha", 0.0, kAlphaMax, config.alpha));
  WC_TRY(fields.read("lora_dropout", 0.0, 1.0, config.dropout));
  WC_TRY(fields.read("use_rslora", config.use_rslora));
  const Json* modules = fields.find("target_modules");
  if (modules == nullptr) return refuse("'target_modules' is missing");
  if (*modules == "all-linear") {
    config.target_modules.assign(lora_target_modules().begin(), lora_target_modules().end());
  } else if (modules->is_array()) {
    for (const Json& module : *modules) {
      if (!module.is_string()) return refuse(fmt::format("'target_modules' has {}, not a text", shown_json(module)));
      config.target_modules.push_back(module.get<std::string>());
    }
  } else {
    return unsupported(
        fmt::format("'target_modules' is {}; it is a list of names, or \"all-linear\"", shown_json(*modules)));
  }
  WC_TRY(check_lora_config(config));
  return config;
}

std::string lora_config_json(const LoraConfig& config, std::string_view base_model) {
  const Json json{{"peft_type", "LORA"},
                  {"task_type", "CAUSAL_LM"},
                  {"base_model_name_or_path", base_model},
                  {"r", config.rank},
                  {"lora_alpha", config.alpha},
                  {"lora_dropout", config.dropout},
                  {"use_rslora", config.use_rslora},
                  {"target_modules", config.target_modules},
                  {"bias", "none"},
                  {"fan_in_fan_out", false},
                  {"inference_mode", true},
                  {"use_dora", false}};
  return json_text(json, 2) + "\n";
}

std::vector<LoraTarget> lora_targets(const ModelConfig& model, const LoraConfig& config) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<LoraTarget> targets;
  for (const TensorSpec& spec : tensor_specs(model)) {
    if (spec.kind != TensorSpec::Kind::kMatrix) continue;
    const std::string module = spec.name.substr(0, spec.name.size() - kWeight.size());
    const std::string last = module.substr(module.rfind('.') + 1);
    if (std::find(config.target_modules.begin(), config.target_modules.end(), last) == config.target_modules.end()) {
      continue;
    }
    const std::string name = "base_model.model." + module;
    targets.push_back({module,
                       {name + ".lora_A.weight", {config.rank, spec.shape[1]}, TensorSpec::Kind::kMatrix},
                       {name + ".lora_B.weight", {spec.shape[0], config.rank}, TensorSpec::Kind::kMatrix}});
  }
  return targets;
}

}  // namespace weightcast
