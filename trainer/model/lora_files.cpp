#include "trainer/model/lora_files.h"

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "patch/snapshot/adapter_names.h"
#include "trainer/model/model_files.h"

namespace weightcast {

Result<LoraFiles> LoraFiles::open(FileSystem& files, const std::filesystem::path& directory, const ModelConfig& model) {
  WC_ASSIGN(const std::string json, read_file(files, directory / kAdapterConfigFile, kSidecarBytesMax));
  Result<LoraConfig> config = parse_lora_config(json);
  if (!config.has_value()) {
    Error error = std::move(config).error();
    error.detail = printable(directory.string()) + "/" + error.detail;
    return error;
  }
  const std::string path = (directory / kAdapterFile).string();
  WC_ASSIGN(SnapshotSource snapshot, SnapshotSource::open(files, path));
  std::vector<TensorSpec> specs;
  for (const LoraTarget& target : lora_targets(model, *config)) {
    specs.push_back(target.a);
    specs.push_back(target.b);
  }
  WC_TRY(check_tensors(specs, snapshot.tensors(), path, kAdapterConfigFile));
  return LoraFiles{*std::move(config), std::move(snapshot)};
}

}  // namespace weightcast
