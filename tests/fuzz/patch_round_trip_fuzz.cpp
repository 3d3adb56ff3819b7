// Arbitrary old and new cells: every kernel makes the same segment in either form, and it gives the new cells back. The
// first byte chooses the kind; of the rest, one half is old and the other half new. From 128 on there are no old ones.
#include "patch/codec/segment_codec.h"

namespace {

using namespace weightcast;

void check(const SegmentRange& range, Bytes before, Bytes after, SparseForm form) {
  std::vector<std::byte> first;
  for (const Kernels* kernels : available_kernels()) {
    std::vector<std::byte> frame, result(range.size_bytes);
    SegmentEncoder(*kernels, form).encode(range, before, after, frame);
    if (first.empty()) first = frame;
    WC_CHECK(frame == first);
    const Result<Segment> segment = read_segment(frame);
    WC_CHECK(segment.has_value());
    WC_CHECK(decode_segment(*segment, before, result, *kernels).has_value());
    WC_CHECK(std::equal(result.begin(), result.end(), after.begin(), after.end()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  SegmentRange range;
  range.kind = CellKind(data[0] % kCellKinds);
  const unsigned width = geometry_of(range.kind).bytes;
  const bool has_base = data[0] < 128;
  range.size_bytes = std::uint32_t((size - 1) / (has_base ? 2 : 1) / width * width);
  range.base_offset = has_base ? 0 : kNoBase;
  if (range.size_bytes == 0) return 0;
  const Bytes cells = std::as_bytes(std::span(data + 1, size - 1));
  const Bytes before = has_base ? cells.first(range.size_bytes) : Bytes();
  const Bytes after = cells.subspan(before.size(), range.size_bytes);
  for (const SparseForm form : {SparseForm::kModelled, SparseForm::kListed}) check(range, before, after, form);
  return 0;
}
