#pragma once

#include <cstdint>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "patch/codec/cell.h"

namespace weightcast {

/// Where a range has no counterpart in the base.
inline constexpr std::uint64_t kNoBase = ~std::uint64_t{0};
/// No segment covers more, so that a decoder knows what it may have to hold.
inline constexpr std::uint32_t kSegmentBytesMax = 64u << 20;
/// What an encoder cuts by default: 4 Mi cells of BF16, for which a segment's own fields are half a percent of its
/// bytes at 99 % unchanged cells.
inline constexpr std::uint32_t kSegmentBytesDefault = 8u << 20;

/// The part of the two snapshot streams that one segment is about.
struct SegmentRange {
  std::uint32_t index = 0;
  std::uint64_t result_offset = 0;
  /// kNoBase, or where the old cells stand in the base's stream.
  std::uint64_t base_offset = kNoBase;
  /// A multiple of the cell's width; 1 to kSegmentBytesMax.
  std::uint32_t size_bytes = 0;
  CellKind kind = CellKind::kRaw8;

  bool operator==(const SegmentRange&) const = default;
  [[nodiscard]] bool has_base() const { return base_offset != kNoBase; }
};

/// How the new cells are told. The values are part of the patch format.
enum class SegmentMode : std::uint8_t {
  kUnchanged = 0,  ///< they are the old ones
  kSparse = 1,     ///< the changed ones, by position and step
  kXorPlanes = 2,  ///< exclusive or with the old ones, as byte planes
  kPlanes = 3,     ///< on their own, as byte planes
  kRaw = 4,        ///< as they are
};
inline constexpr unsigned kSegmentModes = 5;
[[nodiscard]] std::string_view to_string(SegmentMode mode);

struct SegmentHeader {
  SegmentRange range;
  SegmentMode mode = SegmentMode::kUnchanged;
  std::uint32_t payload_bytes = 0;
  /// Cells that differ from the base; all of them where there is none. For kSparse the decoder relies on it.
  std::uint32_t changed_cells = 0;
  /// Of the new cells.
  Digest result_digest;

  bool operator==(const SegmentHeader&) const = default;
};

/// A segment as it lies in bytes that someone else owns; its own digest has been checked.
struct Segment {
  SegmentHeader header;
  Bytes payload;
};

/// Every frame of a patch after its head begins with four bytes that say which it is.
inline constexpr std::uint32_t kSegmentMagic = 0x47455357;  // "WSEG"
inline constexpr std::size_t kSegmentHeaderBytes = 72;

/// The longest payload that a segment of `size_bytes` may have: what kRaw takes, whatever the mode.
[[nodiscard]] constexpr std::uint32_t payload_bytes_max(std::uint32_t size_bytes) { return size_bytes; }

/// Appends header and payload to `out`.
void write_segment(const SegmentHeader& header, Bytes payload, std::vector<std::byte>& out);

/// The same for a payload that is made in its place: kSegmentHeaderBytes at `begin` of `out` are for the header, and
/// all behind them is the payload. Sets header.payload_bytes.
void close_segment(SegmentHeader& header, std::size_t begin, std::vector<std::byte>& out);

/// Reads the first kSegmentHeaderBytes of a segment, before its payload is there. Errors: kCorrupt where a field cannot
/// be right, kTooLarge where a length exceeds its limit. The digest is not checked yet: use only to learn
/// payload_bytes.
Result<SegmentHeader> peek_segment(Bytes header);

/// Reads a whole segment: `frame` is header and payload, no more. Errors: those of peek_segment(); kCorrupt where the
/// frame's digest does not match.
Result<Segment> read_segment(Bytes frame);

}  // namespace weightcast
