#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/files/posix_file_system.h"
#include "base/random.h"
#include "patch/snapshot/adapter_names.h"
#include "trainer/model/lora_files.h"
#include "trainer/model/model_files.h"

namespace weightcast {

/// Writes an adapter of the model in `base`, for all of its matrices, as PEFT does: in FP32, by the numbers of `seed`.
inline void write_lora(const std::filesystem::path& directory, const std::filesystem::path& base, std::uint64_t seed,
                       std::int64_t rank = 4) {
  PosixFileSystem files;
  LoraConfig lora{.rank = rank, .alpha = 6, .target_modules = {}};
  lora.target_modules.assign(lora_target_modules().begin(), lora_target_modules().end());
  Random random(seed);
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::vector<float>> content;
  for (const LoraTarget& target : lora_targets(ModelFiles::open(files, base).value().config, lora)) {
    for (const TensorSpec& spec : {target.a, target.b}) {
      TensorInfo info;
      info.name = spec.name;
      info.dtype = "F32";
      info.shape.assign(spec.shape.begin(), spec.shape.end());
      info.size_bytes = static_cast<std::uint64_t>(spec.elements()) * 4;
      std::vector<float>& values = content[spec.name];
      for (std::int64_t i = 0; i < spec.elements(); ++i) values.push_back(static_cast<float>(random.unit() - 0.5));
      tensors.push_back(std::move(info));
    }
  }
  const Status written = write_new_model(
      files, directory, tensors,
      [&](const TensorInfo& info) -> Result<Bytes> { return std::as_bytes(std::span(content.at(info.name))); },
      {{kAdapterConfigFile, lora_config_json(lora, base.string())}}, kShardBytesMax, kAdapterStem);
  EXPECT_TRUE(written.has_value()) << written.error().message();
}

inline std::vector<float> floats_of(const SnapshotSource& snapshot, const TensorInfo& info) {
  std::vector<std::byte> bytes(info.size_bytes);
  EXPECT_TRUE(snapshot.read_at(info.offset_bytes, bytes).has_value());
  const std::size_t width = info.dtype == "F32" ? 4 : 2;
  std::vector<float> values(bytes.size() / width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    // BF16: the upper half.
    std::byte cell[4] = {};
    std::memcpy(cell + 4 - width, bytes.data() + i * width, width);
    std::memcpy(&values[i], cell, 4);
  }
  return values;
}

/// Writes the model of `base` with the adapter added to its matrices, in FP32.
inline void write_merged(const std::filesystem::path& directory, const std::filesystem::path& base,
                         const std::filesystem::path& adapter) {
  PosixFileSystem files;
  const ModelFiles model = ModelFiles::open(files, base).value();
  const LoraFiles lora = LoraFiles::open(files, adapter, model.config).value();
  std::map<std::string, std::vector<float>> content;
  std::vector<TensorInfo> tensors;
  for (TensorInfo info : model.snapshot.tensors()) {
    content[info.name] = floats_of(model.snapshot, info);
    info.size_bytes = content[info.name].size() * 4;
    info.dtype = "F32";
    tensors.push_back(std::move(info));
  }
  std::map<std::string, std::vector<float>> low;
  for (const TensorInfo& info : lora.snapshot.tensors()) low[info.name] = floats_of(lora.snapshot, info);
  for (const LoraTarget& target : lora_targets(model.config, lora.config)) {
    std::vector<float>& matrix = content.at(target.module + ".weight");
    const std::vector<float>&a = low.at(target.a.name), &b = low.at(target.b.name);
    const auto rank = static_cast<std::size_t>(lora.config.rank);
    const std::size_t inputs = a.size() / rank;
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < rank; ++k) sum += b[i / inputs * rank + k] * a[k * inputs + i % inputs];
      matrix[i] += static_cast<float>(lora.config.scale() * sum);
    }
  }
  const Status written = write_new_model(
      files, directory, tensors,
      [&](const TensorInfo& info) -> Result<Bytes> { return std::as_bytes(std::span(content.at(info.name))); },
      {{"config.json", read_file(files, base / "config.json", 1 << 20).value()}});
  EXPECT_TRUE(written.has_value()) << written.error().message();
}

}  // namespace weightcast
