// Arbitrary bytes as the body of a patch's head, as someone would forge it who can make digests: it is refused, or
// keeps the promises of PatchHead, and gives the same bytes when it is written again.
#include <zstd.h>

#include "patch/codec/byte_io.h"
#include "patch/codec/head.h"

namespace weightcast {
namespace {

std::vector<std::byte> frame_of(Bytes body) {
  std::vector<std::byte> packed(ZSTD_compressBound(body.size())), frame;
  packed.resize(ZSTD_compress(packed.data(), packed.size(), body.data(), body.size(), 1));
  ByteWriter writer(frame);
  writer.fixed(kHeadMagic);
  writer.fixed(std::uint32_t(packed.size()));
  writer.fixed(std::uint32_t(body.size()));
  ChecksumStream digest;
  digest.update(frame);
  digest.update(packed);
  writer.digest(digest.digest());
  writer.bytes(packed);
  return frame;
}

void check(const PatchHead& head) {
  WC_CHECK(head.tensors.size() <= kHeadTensorsMax && head.removed.size() <= kHeadRemovedMax);
  std::uint64_t end = 0;
  for (const PatchPiece& piece : head.pieces) {
    WC_CHECK(piece.result_offset == end && piece.size_bytes > 0);
    end += piece.size_bytes;
    WC_CHECK(piece.tensor == kNoTensor || piece.tensor < head.tensors.size());
    WC_CHECK(piece.base_offset == kNoBase || piece.base_offset + piece.size_bytes <= head.base_bytes);
  }
  WC_CHECK(end == head.result_bytes);
  end = 0;
  const std::vector<SegmentRange> plan = plan_segments(head);
  WC_CHECK(plan.size() <= kSegmentsMax);
  for (const SegmentRange& range : plan) {
    WC_CHECK(range.result_offset == end && range.size_bytes > 0 && range.size_bytes <= kSegmentBytesMax);
    end += range.size_bytes;
    WC_CHECK(!range.has_base() || range.base_offset + range.size_bytes <= head.base_bytes);
    WC_CHECK(range.size_bytes % geometry_of(range.kind).bytes == 0);
  }
  WC_CHECK(end == head.result_bytes);
}

}  // namespace
}  // namespace weightcast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  const Result<PatchHead> head = read_head(frame_of(std::as_bytes(std::span(data, size))));
  if (!head.has_value()) return 0;
  check(*head);
  std::vector<std::byte> again;
  write_head(*head, again);
  const Result<PatchHead> same = read_head(again);
  WC_CHECK(same.has_value() && *same == *head);
  return 0;
}
