#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/files/posix_file_system.h"
#include "base/random.h"
#include "tests/patch/temp_dir.h"
#include "tests/trainer/model/tiny_configs.h"
#include "trainer/model/model_files.h"

namespace weightcast {

/// A directory for one test, which goes with it.
struct TestDirectory : TempDir {
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return file(name); }
};

struct WrittenModel {
  std::string architecture = "Qwen3ForCausalLM";
  std::string dtype = "BF16";
  std::uint64_t seed = 1;
  double changed_share = 0;  ///< of the cells, by the numbers of `changed_seed`
  std::uint64_t changed_seed = 0;
  bool with_nan = false;
  int layers = 2;
  int head_dim = 8;
  int positions = 64;  ///< max_position_embeddings
  bool tied = false;
};

/// Writes a small model in Hugging Face's layout.
inline void write_model(const std::filesystem::path& directory, const WrittenModel& made) {
  nlohmann::json json = tiny_config(made.architecture);
  json["num_hidden_layers"] = made.layers;
  json["max_position_embeddings"] = made.positions;
  json["tie_word_embeddings"] = made.tied;
  if (json.contains("head_dim")) json["head_dim"] = made.head_dim;
  if (made.architecture == "Qwen3ForCausalLM") json["model_type"] = "qwen3";  // which transformers asks for
  if (made.dtype == "BF16") json["torch_dtype"] = "bfloat16";
  const ModelConfig config = parse_model_config(json.dump()).value();
  Random random(made.seed);
  Random changes(made.changed_seed);
  const std::size_t bytes_per_cell = made.dtype == "F32" ? 4 : 2;
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::vector<std::byte>> content;
  for (const TensorSpec& spec : tensor_specs(config)) {
    TensorInfo info;
    info.name = spec.name;
    info.dtype = made.dtype;
    info.shape.assign(spec.shape.begin(), spec.shape.end());
    info.size_bytes = static_cast<std::uint64_t>(spec.elements()) * bytes_per_cell;
    std::vector<std::byte>& bytes = content[spec.name];
    for (std::int64_t i = 0; i < spec.elements(); ++i) {
      auto value = static_cast<float>(random.unit() - (spec.kind == TensorSpec::Kind::kNorm ? -0.5 : 0.5));
      if (changes.unit() < made.changed_share) value = static_cast<float>(changes.unit());
      if (made.with_nan && i == 3) value = std::numeric_limits<float>::quiet_NaN();
      std::byte cell[4];
      std::memcpy(cell, &value, 4);
      bytes.insert(bytes.end(), cell + 4 - bytes_per_cell, cell + 4);  // BF16: the upper half
    }
    tensors.push_back(std::move(info));
  }
  PosixFileSystem files;
  const Status written = write_new_model(
      files, directory, tensors, [&](const TensorInfo& info) -> Result<Bytes> { return Bytes(content.at(info.name)); },
      {{"config.json", json.dump()}});
  EXPECT_TRUE(written.has_value()) << written.error().message();
}

/// Writes the model of `from` without every second of its tensors.
inline void write_half(const std::filesystem::path& from, const std::filesystem::path& directory) {
  PosixFileSystem files;
  const ModelFiles model = ModelFiles::open(files, from).value();
  std::vector<TensorInfo> tensors;
  for (std::size_t i = 0; i < model.snapshot.tensors().size(); i += 2) tensors.push_back(model.snapshot.tensors()[i]);
  std::vector<std::byte> bytes;
  const Status written = write_new_model(files, directory, tensors,
                                         [&](const TensorInfo& info) -> Result<Bytes> {
                                           for (const TensorInfo& tensor : model.snapshot.tensors()) {
                                             if (tensor.name != info.name) continue;
                                             bytes.resize(tensor.size_bytes);
                                             WC_TRY(model.snapshot.read_at(tensor.offset_bytes, bytes));
                                           }
                                           return Bytes(bytes);
                                         },
                                         {{"config.json", read_file(files, from / "config.json", 1 << 20).value()}});
  EXPECT_TRUE(written.has_value()) << written.error().message();
}

}  // namespace weightcast
