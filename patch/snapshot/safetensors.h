#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "patch/snapshot/tensor.h"
#include "patch/snapshot/write_file.h"

namespace weightcast {

// The safetensors format (https://github.com/huggingface/safetensors, "Format"):
//
//   u64 LE   length N of the header, at most 100,000,000
//   N bytes  JSON in UTF-8, from '{'; spaces may follow its end, and nothing else
//            {"NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...,
//             "__metadata__": {"KEY": "VALUE", ...}}
//   rest     the tensors' bytes: little-endian, row-major; BEGIN and END count from here
//
// The tensors cover the rest exactly: the first begins at 0, each where the one before it ends, the last ends at the
// end of the file.

inline constexpr std::uint64_t kSafetensorsHeaderBytesMax = 100'000'000;
/// Limits of ours, far above what models use, so that a hostile header cannot take memory out of proportion.
inline constexpr std::size_t kTensorNameBytesMax = 16384;
inline constexpr std::size_t kTensorsMax = 1'000'000;
inline constexpr std::size_t kTensorRankMax = 64;
inline constexpr std::size_t kMetadataEntriesMax = 100'000;
/// The reference implementation's limit on nested objects and arrays, the outermost object included.
inline constexpr std::size_t kHeaderDepthMax = 127;

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  /// In the order of their bytes. `offset_bytes` counts from the beginning of the file.
  std::vector<TensorInfo> tensors;
  SafetensorsMetadata metadata;
  /// Where the tensors' bytes begin: 8 + N.
  std::uint64_t data_offset_bytes = 0;
};

/// Where the tensors' bytes begin in a file that starts with `prefix` (8 bytes of it suffice) and is `file_bytes` long:
/// how much of it parse_safetensors_header() needs. `file` is the name that errors carry.
/// Errors: kTooLarge (header above its limit), kCorrupt (the file is shorter than its header).
[[nodiscard]] Result<std::uint64_t> safetensors_data_offset(Bytes prefix, std::uint64_t file_bytes,
                                                            std::string_view file);

/// Reads the header of a file that starts with `prefix`, which holds all of the header, and is `file_bytes` long.
/// Refuses what the reference implementation refuses. Exception: a dtype that the format does not name is accepted, and
/// its size is what the offsets say. Also refuses duplicate names (the reference keeps the last), headers that do not
/// start with '{', tensors that are not objects, and what exceeds the limits above.
/// Errors: kTooLarge (a limit), kInvalidArgument (a prefix that ends within the header), kCorrupt (any other rule); the
/// detail names file, tensor and rule.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors_header(Bytes prefix, std::uint64_t file_bytes,
                                                                 std::string_view file);

/// A file that is to be written: its header, and the place of each tensor.
struct SafetensorsLayout {
  /// The length, the JSON and its padding: the file's first bytes. A multiple of the alignment that was asked for.
  std::string header;
  /// For each given tensor, in the order given, where its bytes begin in the file.
  std::vector<std::uint64_t> offsets_bytes;
  /// Indices of the given tensors, in the order of their bytes in the file.
  std::vector<std::size_t> order;
  std::uint64_t file_bytes = 0;
};

/// Lays out `tensors` (their `offset_bytes` are ignored) as the reference implementation does: by dtype, the widest
/// first, then by name; so the same tensors make the same bytes, whatever their order. Unknown dtypes come last.
/// Metadata is ordered by key. The tensors' bytes begin at a multiple of `alignment_bytes`, which is one of 8; the
/// reference implementation takes 8.
/// Errors: kInvalidArgument (a name that is not UTF-8, is given twice or is "__metadata__"; a size that is not what
/// shape and dtype say); kTooLarge (a limit above).
[[nodiscard]] Result<SafetensorsLayout> lay_out_safetensors(std::span<const TensorInfo> tensors,
                                                            const SafetensorsMetadata& metadata = {},
                                                            std::size_t alignment_bytes = 8);

/// Writes a file of that layout; `data` holds each tensor's bytes, in the order in which lay_out_safetensors() was
/// given them. Does not sync. Errors: kInvalidArgument where `data` is not what was laid out (nothing is written then);
/// those of `out`.
[[nodiscard]] Status write_safetensors(FileWriter& out, const SafetensorsLayout& layout, std::span<const Bytes> data);

/// The bytes that `shape` takes in `dtype`, a dtype that the format names.
/// Errors: kTooLarge (above 2^64 bits), kInvalidArgument (unknown dtype; sub-byte elements that do not fill their last
/// byte).
[[nodiscard]] Result<std::uint64_t> tensor_bytes(std::string_view dtype, std::span<const std::uint64_t> shape);

}  // namespace weightcast
