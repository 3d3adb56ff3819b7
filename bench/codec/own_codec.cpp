#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "bench/codec/codec.h"
#include "patch/codec/segment_codec.h"

// The segments of a patch, one after the other, without the patch's own head. Unlike the rivals', every one carries the
// digest of itself and of its result, and applying checks both.

namespace weightcast::bench {
namespace {

/// Segments of the default length. Neighbouring tensors of one kind share segments, as in a patch.
std::vector<SegmentRange> cut(std::span<const TensorInfo> tensors) {
  std::vector<SegmentRange> ranges;
  for (std::size_t t = 0; t < tensors.size();) {
    const CellKind kind = cell_kind_of(tensors[t].dtype);
    std::uint64_t offset = tensors[t].offset_bytes;
    std::uint64_t end = offset;
    for (; t < tensors.size() && tensors[t].offset_bytes == end && cell_kind_of(tensors[t].dtype) == kind; ++t) {
      end += tensors[t].size_bytes;
    }
    while (offset < end) {
      const auto size_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(end - offset, kSegmentBytesDefault));
      ranges.push_back({static_cast<std::uint32_t>(ranges.size()), offset, offset, size_bytes, kind});
      offset += size_bytes;
    }
  }
  return ranges;
}

Result<std::vector<std::byte>> encode(Bytes base, Bytes result, std::span<const TensorInfo> tensors, unsigned threads) {
  const std::vector<SegmentRange> ranges = cut(tensors);
  // A contiguous share of the segments for each thread: an encoder keeps its buffers from one segment to the next.
  const std::size_t shares = std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(1, ranges.size()));
  std::vector<std::vector<std::byte>> parts(shares);
  for_each_index(shares, threads, [&](std::size_t share) {
    SegmentEncoder encoder;
    // Memory is taken when it is written: what is measured is the patch, not a vector's growth.
    parts[share].reserve(result.size());
    const std::size_t last = (share + 1) * ranges.size() / shares;
    for (std::size_t r = share * ranges.size() / shares; r < last; ++r) {
      const SegmentRange& range = ranges[r];
      encoder.encode(range, base.subspan(range.base_offset, range.size_bytes),
                     result.subspan(range.result_offset, range.size_bytes), parts[share]);
    }
  });
  std::vector<std::byte> patch = std::move(parts.front());
  for (std::size_t share = 1; share < shares; ++share) {
    patch.insert(patch.end(), parts[share].begin(), parts[share].end());
  }
  return patch;
}

Status apply_segment(Bytes frame, MutableBytes target) {
  WC_ASSIGN(const Segment segment, read_segment(frame));
  const SegmentRange& range = segment.header.range;
  if (range.result_offset > target.size() || range.size_bytes > target.size() - range.result_offset) {
    return fail(Errc::kCorrupt, Op::kDecode, "patch: a segment lies outside of the snapshot");
  }
  const MutableBytes cells = target.subspan(range.result_offset, range.size_bytes);
  return decode_segment(segment, cells, cells);
}

Status apply(Bytes patch, Bytes, std::span<const TensorInfo>, MutableBytes target, unsigned threads) {
  std::vector<Bytes> frames;
  while (!patch.empty()) {
    if (patch.size() < kSegmentHeaderBytes) return fail(Errc::kCorrupt, Op::kDecode, "patch: cut short");
    WC_ASSIGN(const SegmentHeader header, peek_segment(patch.first(kSegmentHeaderBytes)));
    const std::size_t frame_bytes = kSegmentHeaderBytes + header.payload_bytes;
    if (patch.size() < frame_bytes) return fail(Errc::kCorrupt, Op::kDecode, "patch: cut short");
    frames.push_back(patch.first(frame_bytes));
    patch = patch.subspan(frame_bytes);
  }
  std::vector<Status> done(frames.size());
  for_each_index(frames.size(), threads, [&](std::size_t i) { done[i] = apply_segment(frames[i], target); });
  for (Status& status : done) WC_TRY(std::move(status));
  return {};
}

}  // namespace

constinit const Codec kWeightcast = {"weightcast", encode, apply, true, true};

}  // namespace weightcast::bench
