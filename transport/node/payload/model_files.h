#pragma once

#include <optional>
#include <span>
#include <string>

#include "patch/snapshot/snapshot.h"

namespace weightcast {

/// Reads the files that a program gave with a publication: a safetensors file of `size_bytes` with a U8 tensor for
/// each, under the file's name (client/files.h). Blocks. Errors: kInvalidArgument (a name that no such file may have,
/// another dtype), kTooLarge (kSidecarBytesMax, kSidecarsMax, kSidecarsBytesMax), and those of SnapshotSource::over().
[[nodiscard]] Result<Sidecars> unpack_files(FileSystem& files, const FileRef& packed, std::uint64_t size_bytes);

/// Opens a version of the store, whose manifest has these files. Blocks. Errors: those of SnapshotSource.
[[nodiscard]] Result<SnapshotSource> open_stored(FileSystem& files, const std::string& directory,
                                                 const std::vector<SnapshotFile>& of_manifest, bool file_tree);

/// How tensors differ from those of the version before by name, dtype or shape, in words; absent if they do not.
[[nodiscard]] std::optional<std::string> difference_of(std::span<const TensorInfo> before,
                                                       std::span<const TensorInfo> now);

/// The names of sidecars that `before` has and `now` has not, for a sentence; "" for none.
[[nodiscard]] std::string lost_sidecars(std::span<const SnapshotFile> before, std::span<const SnapshotFile> now);

}  // namespace weightcast
