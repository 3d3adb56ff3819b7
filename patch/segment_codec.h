#pragma once

#include <vector>

#include "patch/planes.h"
#include "patch/segment.h"
#include "patch/sparse.h"

namespace weightcast {

/// Makes segments, each in the mode that takes fewest bytes. The bytes depend on the cells alone, not on the kernels.
/// One thread at a time; keeps its buffers, so use one object for many segments.
class SegmentEncoder {
 public:
  explicit SegmentEncoder(const Kernels& kernels = best_kernels()) : sparse_(kernels) {}

  /// Appends one segment to `out` and returns its header. `before` are the old cells (empty where the range has no
  /// base), `after` the new ones; both as long as the range says.
  SegmentHeader encode(const SegmentRange& range, Bytes before, Bytes after, std::vector<std::byte>& out);

 private:
  void consider(SegmentMode mode, SegmentHeader& header);

  SparseEncoder sparse_;
  std::vector<std::byte> best_;
  std::vector<std::byte> candidate_;
};

/// Writes the new cells of a segment into `after`. `before` are the old cells, empty for a range without base; it may
/// be `after` itself, but must not overlap it otherwise. On error `after` holds anything. Errors: kWrongBase where the
/// segment is sound and `before` is not what it was made from; kCorrupt where the payload, though its digest matched,
/// is no encoding of anything.
Status decode_segment(const Segment& segment, Bytes before, MutableBytes after,
                      const Kernels& kernels = best_kernels());

}  // namespace weightcast
