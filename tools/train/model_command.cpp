#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files/posix_file_system.h"
#include "base/json_of.h"
#include "base/json_text.h"
#include "tools/train/train_commands.h"
#include "trainer/model/model_files.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

Json describe_rope(const RopeConfig& rope) {
  constexpr std::array kNames{"default", "linear", "yarn", "llama3", "dynamic", "longrope"};
  Json json{{"rope_type", kNames[static_cast<std::size_t>(rope.type)]}, {"rope_theta", rope.theta}};
  if (rope.type != RopeType::kDefault) json["factor"] = rope.factor;
  return json;
}

Json describe_config(const ModelConfig& config) {
  Json json = merged(WC_JSON_OF(config.vocab_size, config.hidden_size, config.intermediate_size,
                                config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads,
                                config.head_dim, config.max_position_embeddings, config.tie_word_embeddings),
                     {{"architecture", to_string(config.architecture)}, {"rope", describe_rope(config.rope)}});
  if (config.experts) {
    json["num_experts"] = config.experts->experts;
    json["num_experts_per_tok"] = config.experts->experts_per_token;
    json["moe_intermediate_size"] = config.experts->intermediate_size;
  }
  return json;
}

Json describe_weights(const SnapshotSource& snapshot) {
  std::map<std::string, std::uint64_t> dtypes;
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : snapshot.tensors()) {
    ++dtypes[tensor.dtype];
    bytes += tensor.size_bytes;
  }
  Json names = Json::array();
  for (const SnapshotFile& file : snapshot.file_table().files()) names.push_back(file.name);
  return {{"tensors", snapshot.tensors().size()}, {"bytes", bytes}, {"tensors_by_dtype", dtypes}, {"files", names}};
}

Status describe_model(const std::string& directory) {
  PosixFileSystem files;
  WC_ASSIGN(const ModelFiles model, ModelFiles::open(files, directory));
  const ModelSize size = model_size(model.config);
  Json json = describe_config(model.config);
  json["parameters"] = size.parameters;
  json["matrix_parameters_active"] = size.matrix_parameters_active;
  json["flop_per_token"] = {{"forward", size.flop_per_token},
                            {"training", 3 * size.flop_per_token},
                            {"forward_per_attended_position", size.flop_per_token_and_position}};
  json["cache_elements_per_position"] = size.cache_elements_per_position;
  json["weights"] = describe_weights(model.snapshot);
  std::printf("%s\n", json_text(json).c_str());
  return {};
}

}  // namespace

void add_model_command(const Commands& commands) {
  const auto [command, directory] = add_command<std::string>(
      commands, "model", "Sizes and FLOP per token of a model, whose weights are checked against config.json",
      describe_model);
  command->add_option("DIR", *directory, "A model's directory in Hugging Face's layout")->required();
}

}  // namespace weightcast
