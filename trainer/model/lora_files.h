#pragma once

#include <filesystem>

#include "base/files/file_system.h"
#include "base/result.h"
#include "patch/snapshot/snapshot.h"
#include "trainer/model/config.h"
#include "trainer/model/lora_config.h"

namespace weightcast {

/// A low-rank adapter's directory in PEFT's layout, open for reading.
struct LoraFiles {
  LoraConfig config;
  SnapshotSource snapshot;

  /// Reads adapter_config.json and the header of adapter_model.safetensors. `files` outlives the result. Errors: those
  /// of read_file(), parse_lora_config(), SnapshotSource::open(); kInvalidArgument, which names tensors that are
  /// missing, extra, or of another shape or dtype than an adapter of `model` has.
  [[nodiscard]] static Result<LoraFiles> open(FileSystem& files, const std::filesystem::path& directory,
                                              const ModelConfig& model);
};

}  // namespace weightcast
