#pragma once

#include <string>
#include <vector>

#include "base/digest.h"
#include "base/ids.h"
#include "base/result.h"
#include "patch/codec/segment.h"
#include "patch/snapshot/tensor.h"

namespace weightcast {

/// What a snapshot's stream holds: tensors in the order of their bytes, which do not overlap; what they leave out (file
/// headers, other files) is raw bytes.
struct SnapshotLayout {
  std::uint64_t size_bytes = 0;
  std::vector<TensorInfo> tensors;
};

/// Which versions a patch leads from and to. The digests are those by which the caller knows whole snapshots; the codec
/// carries them and compares them, no more.
struct PatchIdentity {
  std::string model_id;
  Version base_version;  ///< kNoVersion of a packed snapshot
  Version version;
  Digest base_digest;
  Digest result_digest;

  bool operator==(const PatchIdentity&) const = default;
};

/// A part of the result's stream and where its old bytes stand.
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

/// Limits on what a head may claim. Each is checked before memory is taken for what it limits, so that reading a head
/// takes at most kHeadMemoryBytesMax, whatever it claims, beside the head's own bytes.
inline constexpr std::uint32_t kHeadBytesMax = 64u << 20;
inline constexpr std::size_t kSegmentsMax = 1u << 20;
/// Each tensor that has bytes takes at least two of the segments that the head is checked for.
inline constexpr std::size_t kHeadTensorsMax = kSegmentsMax / 2;
inline constexpr std::size_t kHeadRemovedMax = kHeadTensorsMax;
/// Of all tensors together: eight for each on average.
inline constexpr std::size_t kHeadExtentsMax = 8 * kHeadTensorsMax;
inline constexpr std::size_t kHeadMemoryBytesMax = std::size_t{320} << 20;
inline constexpr std::uint32_t kSegmentBytesMin = 4096;

/// What stands before the segments: everything that is needed to plan them and to tell what a patch is.
struct PatchHead {
  PatchIdentity identity;
  std::uint64_t base_bytes = 0;
  std::uint64_t result_bytes = 0;
  std::uint32_t segment_bytes = kSegmentBytesDefault;
  /// Of the result.
  std::vector<TensorInfo> tensors;
  /// Names of the base's tensors that the result has not.
  std::vector<std::string> removed;
  /// Cover the result's stream without gap or overlap, in order. Invariant of every head that make_head() or
  /// read_head() returns.
  std::vector<PatchPiece> pieces;

  bool operator==(const PatchHead&) const = default;
  /// It packs a snapshot: there is no base to decode it from.
  [[nodiscard]] bool from_nothing() const { return base_bytes == 0; }
};

/// Compares the layouts. A tensor is told as a difference where the base has one of the same name, dtype and size,
/// whatever the shape and place; raw bytes where the raw range of the same ordinal has the same size; all else on its
/// own. Errors: kInvalidArgument where a layout's tensors overlap, leave its stream or are out of order, or
/// `segment_bytes` is not within [kSegmentBytesMin, kSegmentBytesMax]; kTooLarge where a limit above would be exceeded,
/// or a name is longer than kTensorNameBytesMax.
Result<PatchHead> make_head(PatchIdentity identity, const SnapshotLayout& base, const SnapshotLayout& result,
                            std::uint32_t segment_bytes = kSegmentBytesDefault);

/// The ranges of all segments, in order: neighbouring pieces of one kind that are neighbours in the base too are cut
/// together, at a piece's end where half a segment has come together, else evenly.
[[nodiscard]] std::vector<SegmentRange> plan_segments(const PatchHead& head);

/// "WCPATCH" and the format's version.
inline constexpr std::uint64_t kHeadMagic = 0x01'48'43'54'41'50'43'57;
inline constexpr std::size_t kHeadPrefixBytes = 32;

void write_head(const PatchHead& head, std::vector<std::byte>& out);
/// Length of the whole head, from its first kHeadPrefixBytes. Errors: kCorrupt, kUnsupported (a later format),
/// kTooLarge.
Result<std::size_t> peek_head(Bytes prefix);
/// `frame` is the head, no more. Errors: as peek_head(); kCorrupt where its digest or a field is wrong; kTooLarge where
/// it claims more than the limits above.
Result<PatchHead> read_head(Bytes frame);

/// What stands after the segments.
struct PatchEnd {
  std::uint32_t segments = 0;
  /// Of the segments' result digests, one after the other in the order of their indices.
  Digest results_digest;

  bool operator==(const PatchEnd&) const = default;
};
/// Whether the end is that of the segments with these results. Errors: kCorrupt.
[[nodiscard]] Status check_end(const PatchEnd& end, std::span<const Digest> results);

inline constexpr std::uint32_t kEndMagic = 0x444e4557;  // "WEND"
inline constexpr std::size_t kEndBytes = 40;

void write_end(const PatchEnd& end, std::vector<std::byte>& out);
/// Errors: kCorrupt.
Result<PatchEnd> read_end(Bytes frame);

}  // namespace weightcast
