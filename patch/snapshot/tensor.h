#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest/checksum.h"

namespace weightcast {

/// A tensor's description in a safetensors header.
struct TensorInfo {
  std::string name;
  /// As written in the header ("BF16", "F8_E4M3", "I64", or a name that this build does not know).
  std::string dtype;
  std::vector<std::uint64_t> shape;
  /// Position in the snapshot stream: the concatenation of the snapshot's files, headers included.
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;

  bool operator==(const TensorInfo&) const = default;
};

/// Bits of one element of a dtype that the safetensors format names; 0 for a name that it does not (such a tensor is
/// carried as raw bytes). F4 is 4; the format's other sub-byte types likewise.
[[nodiscard]] unsigned dtype_bits(std::string_view dtype);

/// The rank of a dtype in the reference implementation's layout of tensors, which puts the highest first. 0 for a name
/// that the format does not know. Grows with dtype_bits(), except that BOOL ranks below the sub-byte types.
[[nodiscard]] unsigned dtype_rank(std::string_view dtype);

/// A name from outside, quoted for a message of one line. Escapes control characters, and omits the middle of a long
/// name.
[[nodiscard]] std::string quoted_name(std::string_view name);

}  // namespace weightcast
