#pragma once

#include <cstdint>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "patch/codec/cell.h"

namespace weightcast {

/// The base offset of a range that has no counterpart in the base.
inline constexpr std::uint64_t kNoBase = ~std::uint64_t{0};
/// The most bytes that a segment covers. It bounds a decoder's memory.
inline constexpr std::uint32_t kSegmentBytesMax = 64u << 20;
/// The default size of a segment: 4 Mi cells of BF16. At 99 % unchanged cells, a segment's own fields are then half a
/// percent of its bytes.
inline constexpr std::uint32_t kSegmentBytesDefault = 8u << 20;

/// The part of the two snapshot streams that one segment covers.
struct SegmentRange {
  std::uint32_t index = 0;
  std::uint64_t result_offset = 0;
  /// The offset of the old cells in the base's stream, or kNoBase.
  std::uint64_t base_offset = kNoBase;
  /// A multiple of the cell's width; 1 to kSegmentBytesMax.
  std::uint32_t size_bytes = 0;
  CellKind kind = CellKind::kRaw8;

  bool operator==(const SegmentRange&) const = default;
  [[nodiscard]] bool has_base() const { return base_offset != kNoBase; }
};

/// How a segment encodes the new cells. The values are part of the patch format.
enum class SegmentMode : std::uint8_t {
  kUnchanged = 0,  ///< equal to the old cells
  kSparse = 1,     ///< the changed cells, by position and step
  kXorPlanes = 2,  ///< exclusive or with the old cells, as byte planes
  kPlanes = 3,     ///< the new cells, as byte planes
  kRaw = 4,        ///< the new cells, raw
  kListed = 5,     ///< the changed cells, by gap and step, without a look at the others; from format 2 on
};
inline constexpr unsigned kSegmentModes = 6;
constexpr Words<kSegmentModes> words_of(SegmentMode) {
  return {"unchanged", "sparse", "xor", "planes", "raw", "listed"};
}

struct SegmentHeader {
  SegmentRange range;
  SegmentMode mode = SegmentMode::kUnchanged;
  std::uint32_t payload_bytes = 0;
  /// How many cells differ from the base; all, if there is no base. The decoders of kSparse and kListed rely on it.
  std::uint32_t changed_cells = 0;
  /// The digest of the new cells; of kListed, that of the changed cells' new values, in order.
  Checksum result_digest;

  /// Whether the digest proves the changed cells alone, so that whoever applies the segment answers for the others:
  /// kListed, and kUnchanged with the digest of no bytes.
  [[nodiscard]] bool digests_changes() const;
  bool operator==(const SegmentHeader&) const = default;
};

/// A segment whose digest has been checked. The bytes belong to someone else.
struct Segment {
  SegmentHeader header;
  Bytes payload;
};

/// The first four bytes of each frame after the head give the kind of the frame.
inline constexpr std::uint32_t kSegmentMagic = 0x47455357;  // "WSEG"
inline constexpr std::size_t kSegmentHeaderBytes = 72;

/// The longest payload that a segment of `size_bytes` may have. A list has no other mode to fall back on, and where all
/// cells change to anything it takes a little more than they do.
[[nodiscard]] constexpr std::uint32_t payload_bytes_max(SegmentMode mode, std::uint32_t size_bytes) {
  return mode == SegmentMode::kListed ? size_bytes + size_bytes / 16 + 1024 : size_bytes;
}

/// Appends header and payload to `out`.
void write_segment(const SegmentHeader& header, Bytes payload, std::vector<std::byte>& out);

/// The same for a payload that is made in its place: kSegmentHeaderBytes at `begin` of `out` are for the header, and
/// all behind them is the payload. Sets header.payload_bytes.
void close_segment(SegmentHeader& header, std::size_t begin, std::vector<std::byte>& out);

/// Reads the first kSegmentHeaderBytes of a segment, before its payload is there. Errors: kCorrupt where a field cannot
/// be right, kTooLarge where a length exceeds its limit. The digest is not checked yet: use only to learn
/// payload_bytes.
Result<SegmentHeader> peek_segment(Bytes header);

/// Reads a whole segment. `frame` is exactly header and payload. Errors: those of peek_segment(); kCorrupt (the frame's
/// digest does not match).
Result<Segment> read_segment(Bytes frame);

}  // namespace weightcast
