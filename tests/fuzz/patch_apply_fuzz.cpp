// Arbitrary bytes as a segment's payload, as someone would forge it who can make digests: the decoder must refuse it,
// or give cells that match their digest. The first four bytes choose kind, mode, changed cells and length; modes that
// need no base have none where theirs is 128 or more.
#include "patch/codec/segment_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  if (size < 4) return 0;
  Segment segment;
  segment.header.range.kind = CellKind(data[0] % kCellKinds);
  segment.header.mode = SegmentMode(data[1] % kSegmentModes);
  const std::uint32_t cells = 1 + 37 * data[3];
  segment.header.changed_cells = std::min<std::uint32_t>(data[2], cells);
  segment.header.range.size_bytes = cells * geometry_of(segment.header.range.kind).bytes;
  const bool needs_base = segment.header.mode != SegmentMode::kPlanes && segment.header.mode != SegmentMode::kRaw;
  const bool has_base = needs_base || data[1] < 128;
  segment.header.range.base_offset = has_base ? 0 : kNoBase;
  segment.payload = std::as_bytes(std::span(data + 4, size - 4));
  std::vector<std::byte> before(segment.header.range.size_bytes), after(before.size());
  std::uint32_t state = 1;
  for (std::byte& byte : before) byte = std::byte((state = state * 1664525 + 1013904223) >> 24);
  if (!has_base) before.clear();
  if (decode_segment(segment, before, after)) WC_CHECK(checksum_of(after) == segment.header.result_digest);
  return 0;
}
