#include "model/adapter_files.h"

#include <algorithm>
#include <unordered_map>

#include "base/text.h"
#include "model/weights.h"

namespace weightcast {
namespace {

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kStem = "adapter_model";

}  // namespace

Status write_adapter(FileSystem& files, const std::filesystem::path& directory, const Decoder& decoder,
                     std::string_view base_model) {
  if (!decoder.adapter()) return fail(Errc::kInvalidArgument, Op::kWrite, "the model has no adapter");
  return write_new_weights(files, directory, decoder.adapter_parameters(),
                           {{kConfigFile, lora_config_json(*decoder.adapter(), base_model)}}, kShardBytesMax, kStem);
}

Status load_adapter(FileSystem& files, const std::filesystem::path& directory, Decoder& decoder) {
  WC_ASSIGN(const std::string json, read_file(files, directory / kConfigFile, kSidecarBytesMax));
  Result<LoraConfig> config = parse_lora_config(json);
  if (!config.has_value()) {
    Error error = std::move(config).error();
    error.detail = printable(directory.string()) + "/" + error.detail;
    return error;
  }
  const std::string path = (directory / kStem).string() + ".safetensors";
  WC_ASSIGN(const SnapshotSource snapshot, SnapshotSource::open(files, path));
  std::vector<TensorSpec> specs;
  for (const LoraTarget& target : lora_targets(decoder.config(), *config)) {
    specs.push_back(target.a);
    specs.push_back(target.b);
  }
  WC_TRY(check_tensors(specs, snapshot.tensors(), path, kConfigFile));
  std::unordered_map<std::string_view, torch::Tensor> tensors;
  for (const TensorInfo& info : snapshot.tensors()) {
    WC_ASSIGN(tensors[info.name], read_tensor(snapshot, info));
  }
  WC_TRY(decoder.add_adapter(*config, 0));
  const at::NoGradGuard no_gradients;
  for (const Parameter& parameter : decoder.adapter_parameters()) {
    parameter.tensor.copy_(tensors.at(parameter.name));
  }
  return {};
}

}  // namespace weightcast
