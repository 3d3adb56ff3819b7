#pragma once

#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/ids.h"
#include "patch/interop/edit_tensors.h"

namespace weightcast {

// slime's delta directory (THUDM/slime, update_weight_from_disk_delta.py and disk_delta.py), which miles, Stitch and
// ModelExpress read and write too:
//
//   weight_v{N:06d}/model.safetensors.index.json   {"metadata": {"version", "base_version": six digits or more;
//                                                   "delta_encoding": "xor" | "overwrite"; "compression_format":
//                                                   "zstd"; "checksum_format": "xxh3-128" | "adler32" | "blake3"},
//                                                   "weight_map": {TENSOR: FILE, ...}}; changed tensors only
//   weight_v{N:06d}/model-00000-of-00001.safetensors, ...
//                                                  one U8 tensor for each changed one: a zstd frame. The file's
//                                                  metadata gives for each the checksum of the new tensor's bytes, in
//                                                  hexadecimal
//
// The frame holds, for xor, new xor old bytes; for overwrite, a count, that many positions of changed bytes (u32 each)
// and the new bytes there.

enum class SlimeEncoding : std::uint8_t { kXor, kOverwrite };
enum class SlimeChecksum : std::uint8_t { kXxh3_128, kAdler32 };

/// The metadata of a delta's index.
struct SlimeIndex {
  Version version;
  Version base_version;
  SlimeEncoding encoding = SlimeEncoding::kXor;
  SlimeChecksum checksum = SlimeChecksum::kXxh3_128;
  /// Whether nothing changed. The delta then consists of its index.
  bool empty = false;
};

/// `file` is the name that errors carry. Errors: kCorrupt (no JSON, members missing or wrong), kUnsupported (an
/// encoding, compression or checksum that this build does not know).
Result<SlimeIndex> read_slime_index(std::string_view json, std::string_view file);

/// The frame for one tensor, empty if nothing changed. Both versions are equally long. Deterministic for one release of
/// zstd. Errors: kUnsupported (overwriting a tensor of 4 GiB or more).
Result<std::vector<std::byte>> encode_slime_tensor(SlimeEncoding encoding, Bytes before, Bytes after);

/// Turns the old `cells` into the new ones. Errors: kCorrupt; `cells` then hold anything.
Status apply_slime_tensor(SlimeEncoding encoding, Bytes frame, MutableBytes cells);

/// In hexadecimal, as slime writes it.
[[nodiscard]] std::string slime_checksum(SlimeChecksum checksum, Bytes bytes);

struct SlimeSummary {
  /// The directory that was written.
  std::string path;
  std::size_t changed_tensors = 0;
  std::uint64_t bytes = 0;
};

/// Writes `directory`/weight_v{N:06d}, which appears when it is complete. Takes as much memory as the compressed delta.
/// Errors: those of pair_tensors() and encode_slime_tensor(); kAlreadyExists (the directory exists); fail_errno().
Result<SlimeSummary> export_slime_delta(FileSystem& files, const SnapshotLayout& before, const ByteSource& base,
                                        const SnapshotLayout& after, const ByteSource& result, const SlimeIndex& index,
                                        const std::string& directory);

/// Applies the delta in `directory` (a weight_v...) to the base, and writes the result to `target`. Checks every
/// changed tensor against its checksum. The format has no checksum of unchanged tensors. Errors: those of
/// read_slime_index() and SnapshotSource::open(); kInvalidArgument (the base lacks a tensor), kCorrupt (a frame is
/// damaged; a checksum does not match, because the delta is damaged or the base is another version); those of the
/// streams.
Result<SlimeIndex> import_slime_delta(FileSystem& files, const std::string& directory, const SnapshotLayout& before,
                                      const ByteSource& base, ByteTarget& target);

}  // namespace weightcast
