#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/digest/checksum.h"
#include "base/ids.h"
#include "base/result.h"
#include "proto/limits.h"

namespace weightcast {

/// Every frame on every connection starts with these 40 bytes, little-endian:
///
///   offset  size  field
///        0     4  magic "WCF2"
///        4     1  type
///        5     1  payload kind (chunk frames; else 0)
///        6     2  zero
///        8     4  body length in bytes
///       12     4  chunk index (chunk frames; else 0)
///       16     8  version (chunk frames; else 0)
///       24     8  base version (chunk frames of a patch; else 0)
///       32     8  XXH3-64 of bytes 0 to 31
///
/// The check detects at once a stream that is out of step or of another protocol; without it, any length could be read.
enum class FrameType : std::uint8_t {
  kControl = 1,  ///< body: a protobuf Message; at most kControlBytesMax
  kChunk = 2,    ///< body: the chunk's bytes; at most kChunkBytesMax
};

struct FrameHeader {
  static constexpr std::size_t kBytes = 40;

  FrameType type = FrameType::kControl;
  std::uint32_t body_bytes = 0;
  ChunkIndex chunk{};
  PayloadId payload{};

  bool operator==(const FrameHeader&) const = default;
};

using FrameHeaderBytes = std::array<std::byte, FrameHeader::kBytes>;

[[nodiscard]] FrameHeaderBytes encode_frame_header(const FrameHeader& header);

/// Errors: kCorrupt (magic, check or a field that must be zero), kUnsupported (type), kTooLarge (length).
[[nodiscard]] Result<FrameHeader> decode_frame_header(Bytes bytes);

}  // namespace weightcast
