#pragma once

#include <string>
#include <vector>

#include "base/digest/checksum.h"
#include "base/ids.h"
#include "base/result.h"
#include "patch/codec/segment.h"
#include "patch/snapshot/tensor.h"

namespace weightcast {

/// The contents of a snapshot's stream: tensors in the order of their bytes, without overlap. All other bytes (file
/// headers, other files) are raw.
struct SnapshotLayout {
  std::uint64_t size_bytes = 0;
  std::vector<TensorInfo> tensors;
};

/// The base and the result of a patch. The digests identify whole snapshots for the caller; the codec only carries and
/// compares them.
struct PatchIdentity {
  std::string model_id;
  Version base_version;  ///< kNoVersion of a packed snapshot
  Version version;
  Checksum base_digest;
  Checksum result_digest;

  bool operator==(const PatchIdentity&) const = default;
};

/// A part of the result's stream, with the place of its old bytes.
struct PatchPiece {
  std::uint64_t result_offset = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t base_offset = kNoBase;
  CellKind kind = CellKind::kRaw8;
  /// Index into PatchHead::tensors, or kNoTensor for raw bytes.
  std::uint32_t tensor = 0;

  bool operator==(const PatchPiece&) const = default;
};
inline constexpr std::uint32_t kNoTensor = ~std::uint32_t{0};

/// Limits on a head's claims. The reader checks each before it takes memory. So reading a head takes at most
/// kHeadMemoryBytesMax beside the head's own bytes, whatever it claims.
inline constexpr std::uint32_t kHeadBytesMax = 64u << 20;
inline constexpr std::size_t kSegmentsMax = 1u << 20;
/// Each tensor that has bytes takes at least two of the segments that the head is checked for.
inline constexpr std::size_t kHeadTensorsMax = kSegmentsMax / 2;
inline constexpr std::size_t kHeadRemovedMax = kHeadTensorsMax;
/// Of all tensors together: eight for each on average.
inline constexpr std::size_t kHeadExtentsMax = 8 * kHeadTensorsMax;
inline constexpr std::size_t kHeadMemoryBytesMax = std::size_t{320} << 20;
inline constexpr std::uint32_t kSegmentBytesMin = 4096;

/// Writers write this version; a reader takes those from 1 on. Version 2 has SegmentMode::kListed.
inline constexpr std::uint8_t kFormatVersion = 2;

/// The beginning of a patch: all that a reader needs to identify the patch and to plan its segments.
struct PatchHead {
  std::uint8_t format_version = kFormatVersion;
  PatchIdentity identity;
  std::uint64_t base_bytes = 0;
  std::uint64_t result_bytes = 0;
  std::uint32_t segment_bytes = kSegmentBytesDefault;
  /// Of the result.
  std::vector<TensorInfo> tensors;
  /// Names of the base's tensors that the result lacks.
  std::vector<std::string> removed;
  /// In order, they cover the result's stream without gap or overlap. make_head() and read_head() guarantee that.
  std::vector<PatchPiece> pieces;

  bool operator==(const PatchHead&) const = default;
  /// Whether this packs a snapshot and so has no base.
  [[nodiscard]] bool from_nothing() const { return base_bytes == 0; }
  /// Whether a segment of that mode may stand in a patch of this version.
  [[nodiscard]] bool knows(SegmentMode mode) const { return format_version >= 2 || mode != SegmentMode::kListed; }
};

/// Compares the layouts and pairs what can be encoded as a difference:
///   a tensor    with the base's tensor of the same name, dtype and size, whatever its shape and place
///   raw bytes   with the base's raw range of the same ordinal, if it has the same size
/// All else is encoded without a base. Errors: kInvalidArgument (a layout's tensors overlap, leave its stream or are
/// out of order; `segment_bytes` is not within [kSegmentBytesMin, kSegmentBytesMax]), kTooLarge (a limit above; a name
/// longer than kTensorNameBytesMax).
Result<PatchHead> make_head(PatchIdentity identity, const SnapshotLayout& base, const SnapshotLayout& result,
                            std::uint32_t segment_bytes = kSegmentBytesDefault);

/// The ranges of all segments, in order. Pieces of one kind that adjoin in the result and in the base are joined until
/// they fill half a segment. A run that is longer than a segment is cut evenly.
[[nodiscard]] std::vector<SegmentRange> plan_segments(const PatchHead& head);

/// "WCPATCH" and the format's version, in the highest byte.
inline constexpr std::uint64_t kHeadMagic = 0x00'48'43'54'41'50'43'57 | std::uint64_t{kFormatVersion} << 56;
inline constexpr std::size_t kHeadPrefixBytes = 32;

void write_head(const PatchHead& head, std::vector<std::byte>& out);
/// Length of the whole head, from its first kHeadPrefixBytes. Errors: kCorrupt, kUnsupported (a later format),
/// kTooLarge.
Result<std::size_t> peek_head(Bytes prefix);
/// Reads a head. `frame` is exactly the head. Errors: those of peek_head(); kCorrupt (its digest or a field is wrong),
/// kTooLarge (a limit above).
Result<PatchHead> read_head(Bytes frame);

/// The end of a patch, after the segments.
struct PatchEnd {
  std::uint32_t segments = 0;
  /// The digest of the segments' result digests, concatenated in the order of their indices.
  Checksum results_digest;

  bool operator==(const PatchEnd&) const = default;
};
/// Checks that the end belongs to segments with these results. Errors: kCorrupt.
[[nodiscard]] Status check_end(const PatchEnd& end, std::span<const Checksum> results);

inline constexpr std::uint32_t kEndMagic = 0x444e4557;  // "WEND"
inline constexpr std::size_t kEndBytes = 40;

void write_end(const PatchEnd& end, std::vector<std::byte>& out);
/// Errors: kCorrupt.
Result<PatchEnd> read_end(Bytes frame);

}  // namespace weightcast
