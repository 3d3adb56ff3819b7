#include <fmt/format.h>
#include <torch/types.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "tools/train/train_commands.h"
#include "trainer/model/decoder.h"

namespace weightcast {
namespace {

struct LogitsFlags {
  std::string directory;
  std::vector<std::int64_t> ids;
  std::string dtype = "float32";
};

Status check_logits(const LogitsFlags& flags) {
  PosixFileSystem files;
  WC_ASSIGN(const ModelFiles model, ModelFiles::open(files, flags.directory));
  for (const std::int64_t id : flags.ids) {
    if (id < 0 || id >= model.config.vocab_size) {
      return fail(Errc::kInvalidArgument, Op::kParse,
                  fmt::format("--ids: {} is no token; the model's are 0 to {}", id, model.config.vocab_size - 1));
    }
  }
  const DecoderOptions options{.dtype = flags.dtype == "float32" ? at::kFloat : at::kBFloat16};
  WC_ASSIGN(const Decoder decoder, Decoder::load(model, options));
  const std::vector<std::int64_t> starts{0};
  const torch::Tensor hidden = decoder.hidden(torch::tensor(flags.ids, at::kLong), starts);
  const torch::Tensor logits = at::linear(hidden[-1], decoder.head()).to(at::kFloat);
  nlohmann::json list = nlohmann::json::array();
  for (std::int64_t i = 0; i < logits.size(0); ++i) list.push_back(logits.data_ptr<float>()[i]);
  std::printf("%s\n", json_text({{"logits", list}}).c_str());
  return {};
}

}  // namespace

void add_check_logits(const Commands& check) {
  const auto [logits, flags] =
      add_command<LogitsFlags>(check, "logits", "The logits of a model after the last of some tokens", check_logits);
  logits->add_option("DIR", flags->directory, "A model's directory in Hugging Face's layout")->required();
  logits->add_option("--ids", flags->ids, "The tokens: 1,2,3")->delimiter(',')->required();
  logits->add_option("--dtype", flags->dtype, "What is computed in")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
}

}  // namespace weightcast
