#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "tools/train/train_commands.h"
#include "trainer/model/adapter_files.h"
#include "trainer/model/weights.h"

namespace weightcast {
namespace {

struct MergeFlags {
  std::string model, adapter, out;
};

Status merge(const MergeFlags& flags) {
  PosixFileSystem files;
  WC_ASSIGN(const ModelFiles model, ModelFiles::open(files, flags.model));
  // In FP32, so that each matrix is rounded once.
  WC_ASSIGN(Decoder decoder, Decoder::load(model));
  WC_TRY(load_adapter(files, flags.adapter, decoder));
  WC_TRY(write_weights_like(files, model.snapshot, flags.out, decoder.merged_parameters()));
  const std::size_t matrices = decoder.adapter_parameters().size() / 2;
  std::printf("%s\n", json_text({{"merged_matrices", matrices}}).c_str());
  return {};
}

}  // namespace

void add_merge_command(const Commands& commands) {
  const auto [command, flags] = add_command<MergeFlags>(
      commands, "merge", "Add a low-rank adapter to a model's matrices, as a model of its own", merge);
  command->add_option("DIR", flags->model, "The model beneath, in Hugging Face's layout")->required();
  command->add_option("ADAPTER", flags->adapter, "The adapter's directory, in PEFT's layout")->required();
  command->add_option("OUT", flags->out, "The directory that is made: DIR's files, with other weights")->required();
}

}  // namespace weightcast
