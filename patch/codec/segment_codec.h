#pragma once

#include <variant>
#include <vector>

#include "patch/codec/planes.h"
#include "patch/codec/segment.h"
#include "patch/codec/sparse.h"

namespace weightcast {

/// Encodes segments, each in the mode that takes fewest bytes. The output depends on the cells alone, not on the
/// kernels. One thread at a time. Use one object for many segments, because it keeps its buffers.
class SegmentEncoder {
 public:
  explicit SegmentEncoder(const Kernels& kernels = best_kernels()) : sparse_(kernels), planes_(kernels) {}

  /// Appends one segment to `out` and returns its header. `before` has the old cells (none if the range has no base),
  /// `after` the new ones. Both are as long as the range.
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

/// Decodes one segment in windows, in order. So each byte is used while it is in the cache, and the memory does not
/// grow with the segment. One thread at a time.
class SegmentDecoder {
 public:
  /// The payload of `segment` outlives the decoder. Errors: kCorrupt (the payload is no valid encoding although its
  /// digest matches).
  static Result<SegmentDecoder> start(const Segment& segment, const Kernels& kernels = best_kernels());

  /// Writes the next new cells into `after`: whole cells, not beyond the range. `before` has the old cells, none for a
  /// range without a base. It may be `after` itself, but no other overlap is allowed. The output is verified only when
  /// finish() succeeds. Errors: those of finish(); `after` then holds anything.
  Status next(Bytes before, MutableBytes after);

  /// To be called after the last cell. Errors: kWrongBase (the segment is sound, but the old cells are not those that
  /// it was made from), kCorrupt as start().
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

/// Decodes all cells of a segment. `after` is as long as its range. `before` and errors are as for
/// SegmentDecoder::next() and finish(). After an error `after` holds anything.
Status decode_segment(const Segment& segment, Bytes before, MutableBytes after,
                      const Kernels& kernels = best_kernels());

}  // namespace weightcast
