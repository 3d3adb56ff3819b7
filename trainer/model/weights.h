#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "base/files/file_system.h"
#include "base/result.h"
#include "trainer/model/decoder.h"
#include "trainer/model/model_files.h"

namespace weightcast {

/// "F32" for at::kFloat, and so on, for the dtypes that weights have.
[[nodiscard]] std::string_view dtype_name(torch::ScalarType dtype);

/// A tensor of a model's files, as it is stored. Errors: those of reading; kInvalidArgument, which names the tensor if
/// it has a NaN or an infinity.
[[nodiscard]] Result<torch::Tensor> read_tensor(const SnapshotSource& snapshot, const TensorInfo& info);

/// Writes `parameters` as a directory of the form that `source` has: write_model_like(). Each tensor is rounded to the
/// dtype in which the source stores it. What did not change since it was read has the same bytes, unless the decoder
/// computes in less precision than the source stores. A tied head that is stored gets the embedding.
[[nodiscard]] Status write_weights_like(FileSystem& files, const SnapshotSource& source,
                                        const std::filesystem::path& directory, std::span<const Parameter> parameters);

/// Writes `parameters` in their own dtype, and `sidecars`: write_new_model().
[[nodiscard]] Status write_new_weights(FileSystem& files, const std::filesystem::path& directory,
                                       std::span<const Parameter> parameters,
                                       const std::map<std::string, std::string>& sidecars,
                                       std::uint64_t shard_bytes_max = kShardBytesMax, std::string_view stem = "model");

}  // namespace weightcast
