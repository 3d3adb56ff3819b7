#pragma once

#include <variant>
#include <vector>

#include "patch/codec/planes.h"
#include "patch/codec/segment.h"
#include "patch/codec/sparse.h"

namespace weightcast {

/// Makes segments, each in the mode that takes fewest bytes. The bytes depend on the cells alone, not on the kernels.
/// One thread at a time; keeps its buffers, so use one object for many segments.
class SegmentEncoder {
 public:
  explicit SegmentEncoder(const Kernels& kernels = best_kernels()) : sparse_(kernels), planes_(kernels) {}

  /// Appends one segment to `out` and returns its header. `before` are the old cells (empty where the range has no
  /// base), `after` the new ones; both as long as the range says.
  SegmentHeader encode(const SegmentRange& range, Bytes before, Bytes after, std::vector<std::byte>& out);

 private:
  /// Of a range without base: planes, or the cells as they are, made in their place.
  SegmentHeader encode_whole(const SegmentRange& range, Bytes after, std::vector<std::byte>& out);
  /// Planes of the cells, if they are shorter than `best`.
  void try_planes(const SegmentRange& range, SegmentMode mode, Bytes after, const std::byte* before, Bytes& best,
                  SegmentHeader& header);

  SparseEncoder sparse_;
  PlanesEncoder planes_;
  std::vector<std::byte> sparse_payload_;
  std::vector<std::byte> xor_payload_;
  std::vector<std::byte> planes_payload_;
};

/// Makes the new cells of one segment in windows, in order, so that each byte is looked at while it is in the cache,
/// and what it holds does not grow with the segment. One thread at a time.
class SegmentDecoder {
 public:
  /// The payload that `segment` points to outlives the decoder. Errors: kCorrupt where the payload, though its digest
  /// matched, is no encoding of anything.
  static Result<SegmentDecoder> start(const Segment& segment, const Kernels& kernels = best_kernels());

  /// Writes the next new cells into `after`. `before` are the old ones, empty for a range without base; it may be
  /// `after` itself, but must not overlap it otherwise. Whole cells, not beyond the range. What comes out can be wrong
  /// until finish() has said that it is not. Errors: those of finish(); then `after` holds anything.
  Status next(Bytes before, MutableBytes after);

  /// After the last cell. Errors: kWrongBase where the segment is sound and the old cells are not what it was made
  /// from; kCorrupt as start().
  Status finish();

 private:
  /// Of kUnchanged: nothing is to be read.
  struct Nothing {};
  using Payload = std::variant<Nothing, SparseDecoder, PlanesDecoder, Bytes>;

  SegmentDecoder(const SegmentHeader& header, Payload payload) : header_(header), payload_(std::move(payload)) {}
  /// What is wrong where the payload is sound.
  [[nodiscard]] Error mismatch() const;

  SegmentHeader header_;
  Payload payload_;
  std::uint32_t done_bytes_ = 0;
  DigestStream digest_;
};

/// All cells of a segment at once; sizes are the range's. `before` and errors: as SegmentDecoder::next() and finish().
/// On error `after` holds anything.
Status decode_segment(const Segment& segment, Bytes before, MutableBytes after,
                      const Kernels& kernels = best_kernels());

}  // namespace weightcast
