// Arbitrary bytes as a segment's payload, as someone would forge it who can make digests: the decoder must refuse it,
// or give cells that match their digest; a list must give the same cells all at once and in windows. The first four
// bytes choose kind, mode, changed cells and length; modes that need no base have none where theirs is 128 or more.
#include <algorithm>
#include <functional>

#include "patch/codec/segment_codec.h"

namespace {

using namespace weightcast;

void check_list(Segment& segment, Bytes before) {
  const SegmentRange& range = segment.header.range;
  const unsigned width = geometry_of(range.kind).bytes;
  CellChanges changes;
  if (!ListedDecoder().decode(segment, changes)) return;
  WC_CHECK(changes.cells.size() == segment.header.changed_cells);
  WC_CHECK(std::ranges::is_sorted(changes.cells, std::ranges::less_equal()));
  WC_CHECK(changes.cells.back() < range.size_bytes / width);
  std::vector<std::byte> written(before.begin(), before.end()), windowed(before.size());
  std::vector<std::byte> old_values(changes.values.size());
  segment.header.result_digest = apply_steps(range.kind, written.data(), changes, old_values.data());
  WC_CHECK(decode_segment(segment, before, windowed).has_value());
  WC_CHECK(windowed == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
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
  if (segment.header.mode == SegmentMode::kListed) {
    check_list(segment, before);
    return 0;
  }
  if (decode_segment(segment, before, after)) WC_CHECK(checksum_of(after) == segment.header.result_digest);
  return 0;
}
