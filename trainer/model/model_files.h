#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "patch/snapshot/snapshot.h"
#include "trainer/model/config.h"

namespace weightcast {

/// Checks that `tensors` are `specs`, in a dtype that models are computed from (F32, BF16, F16). `what` names the
/// weights in errors, `config` the file that says what they should be. Errors: kInvalidArgument, which counts and names
/// what is missing, extra, or of another shape or dtype.
[[nodiscard]] Status check_tensors(std::span<const TensorSpec> specs, std::span<const TensorInfo> tensors,
                                   std::string_view what, std::string_view config);

/// The same for a whole model. A tied head may be there or not, and so may what is_rope_buffer() tells.
[[nodiscard]] Status check_tensors(const ModelConfig& config, std::span<const TensorInfo> tensors,
                                   std::string_view what);

/// A model's directory in Hugging Face's layout, open for reading: config.json, and the weights that it describes.
struct ModelFiles {
  ModelConfig config;
  /// What the directory holds. `file_table()` has its sidecars, too: the tokenizer, generation_config.json.
  SnapshotSource snapshot;

  /// Reads config.json and the headers of the weights. `files` outlives the result.
  /// Errors: those of read_file(), parse_model_config(), SnapshotSource::open() and check_tensors().
  [[nodiscard]] static Result<ModelFiles> open(FileSystem& files, const std::filesystem::path& directory);
  /// The same where the weights come alone, as from a learner, and `config` is known already.
  [[nodiscard]] static Result<ModelFiles> open(FileSystem& files, const std::filesystem::path& directory,
                                               ModelConfig config);
};

/// Gives the bytes of a tensor that is being written, in the dtype and shape that `info` says. They stay valid until
/// the next call.
using TensorBytes = std::function<Result<Bytes>(const TensorInfo& info)>;

/// Writes a directory with the files of `source`: the same names, headers and sidecars, byte for byte, and of each
/// tensor of the model the bytes that `bytes_of` gives. The directory appears when it is complete. Errors:
/// kAlreadyExists
/// (`directory` exists); those of `bytes_of`, of reading and of writing.
[[nodiscard]] Status write_model_like(FileSystem& files, const SnapshotSource& source,
                                      const std::filesystem::path& directory, const TensorBytes& bytes_of);

/// The most bytes of tensors in a file, as transformers shards by default.
inline constexpr std::uint64_t kShardBytesMax = 5'000'000'000;

/// Writes a directory for a model that was not read from one: `tensors` (offsets are ignored) as model.safetensors, or
/// as shards of at most `shard_bytes_max` bytes with model.safetensors.index.json, and `sidecars` by file name. The
/// directory appears when it is complete. Errors: as write_model_like().
[[nodiscard]] Status write_new_model(FileSystem& files, const std::filesystem::path& directory,
                                     std::span<const TensorInfo> tensors, const TensorBytes& bytes_of,
                                     const std::map<std::string, std::string>& sidecars,
                                     std::uint64_t shard_bytes_max = kShardBytesMax, std::string_view stem = "model");

}  // namespace weightcast
