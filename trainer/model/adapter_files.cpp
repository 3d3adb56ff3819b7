#include "trainer/model/adapter_files.h"

#include <unordered_map>

#include "trainer/model/lora_files.h"
#include "trainer/model/weights.h"

namespace weightcast {

Status load_adapter(FileSystem& files, const std::filesystem::path& directory, Decoder& decoder) {
  WC_ASSIGN(const LoraFiles adapter, LoraFiles::open(files, directory, decoder.config()));
  std::unordered_map<std::string_view, torch::Tensor> tensors;
  for (const TensorInfo& info : adapter.snapshot.tensors()) {
    WC_ASSIGN(tensors[info.name], read_tensor(adapter.snapshot, info));
  }
  WC_TRY(decoder.add_adapter(adapter.config, 0));
  const at::NoGradGuard no_gradients;
  for (const Parameter& parameter : decoder.adapter_parameters()) {
    parameter.tensor.copy_(tensors.at(parameter.name));
  }
  return {};
}

}  // namespace weightcast
