#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/digest/checksum.h"
#include "base/files/file_system.h"
#include "base/result.h"

namespace weightcast {

/// The name that Parallax and IPFS give to bytes: CIDv1, raw, SHA-256, in base 32. "bafkrei...".
[[nodiscard]] std::string cid_of(Bytes data);

/// Which block has which tensor, or part of one: NAME.weight is NAME.weight_part0, ... where it is divided by rows.
using ParallaxIndex = std::map<std::string, std::string>;

/// Writes the tensors of a version as blocks, each a safetensors file of one tensor or part of at most
/// `block_bytes_max`, into `blocks`, named by cid_of(). A tensor that may not be divided, or whose row is larger, is
/// one block. A block that is there already is not written again. Parallax: src/parallax/utils/weight_refit_utils.py,
/// August 2026. Errors: those of SnapshotSource::open(), of reading and of writing.
[[nodiscard]] Result<ParallaxIndex> write_parallax_blocks(FileSystem& files, const std::filesystem::path& version,
                                                          const std::filesystem::path& blocks,
                                                          std::uint64_t block_bytes_max);

/// Removes the blocks that `index` does not name; no other file. Errors: those of the file system.
[[nodiscard]] Status remove_other_blocks(FileSystem& files, const std::filesystem::path& blocks,
                                         const ParallaxIndex& index);

}  // namespace weightcast
