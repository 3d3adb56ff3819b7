#include "transport/node/payload/sampled_share.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/units.h"
#include "patch/codec/planes.h"
#include "patch/codec/segment_codec.h"
#include "patch/snapshot/snapshot_stream.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kSamples = 32;
// Tables of frequencies are a fiftieth of what BF16 cells of that many bytes take.
constexpr std::uint64_t kSampleBytes = 32 * kKiB;
// Those of steps take more, and most cells of a sample may be as they were.
constexpr std::uint64_t kPatchSampleBytes = 64 * kKiB;
// Words that are only compared.
constexpr std::uint64_t kWordSamples = 64;
constexpr std::size_t kWordSampleBytes = 64 * kKiB;

/// The cells of a sample: of one piece, at most `sample_bytes` from sample i's place on.
SegmentRange sample(const PatchHead& head, std::uint64_t i, std::uint64_t sample_bytes) {
  const std::uint64_t at = head.result_bytes / kSamples * i;
  // They cover the stream.
  const auto piece = std::prev(
      std::upper_bound(head.pieces.begin(), head.pieces.end(), at,
                       [](std::uint64_t offset, const PatchPiece& later) { return offset < later.result_offset; }));
  const std::uint64_t width = geometry_of(piece->kind).bytes;
  const std::uint64_t begin = (at - piece->result_offset) / width * width;
  SegmentRange range;
  range.kind = piece->kind;
  range.result_offset = piece->result_offset + begin;
  if (piece->base_offset != kNoBase) range.base_offset = piece->base_offset + begin;
  range.size_bytes = static_cast<std::uint32_t>(std::min(sample_bytes, piece->size_bytes - begin) / width * width);
  return range;
}

double share_of(std::uint64_t coded_bytes, std::uint64_t bytes) {
  return bytes == 0 ? 1.0 : double(coded_bytes) / double(bytes);
}

}  // namespace

Result<double> changed_share(const SnapshotSource& base, const SnapshotSource& result) {
  const std::uint64_t common_bytes = std::min(base.size_bytes(), result.size_bytes());
  std::vector<std::byte> before(kWordSampleBytes), after(kWordSampleBytes);
  std::uint64_t words = 0, changed = 0;
  for (std::uint64_t i = 0; i < kWordSamples; ++i) {
    const std::uint64_t offset = common_bytes / kWordSamples * i / 2 * 2;
    const auto size =
        static_cast<std::size_t>(std::min<std::uint64_t>(kWordSampleBytes, common_bytes - offset)) / 2 * 2;
    WC_TRY(base.read_at(offset, MutableBytes(before).first(size)));
    WC_TRY(result.read_at(offset, MutableBytes(after).first(size)));
    for (std::size_t at = 0; at < size; at += 2) changed += std::memcmp(&before[at], &after[at], 2) != 0 ? 1 : 0;
    words += size / 2;
  }
  return words == 0 ? 1.0 : double(changed) / double(words);
}

Result<double> packed_share(const SnapshotSource& snapshot) {
  WC_ASSIGN(const PatchHead head, make_head({}, SnapshotLayout{}, layout_of(snapshot)));
  if (head.pieces.empty()) return 1.0;
  std::vector<std::byte> cells, packed;
  PlanesEncoder planes(best_kernels());
  std::uint64_t cells_bytes = 0, packed_bytes = 0;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const SegmentRange range = sample(head, i, kSampleBytes);
    cells.resize(range.size_bytes);
    WC_TRY(snapshot.read_at(range.result_offset, cells));
    packed.clear();
    planes.encode(range.kind, cells, nullptr, cells.size(), packed);
    cells_bytes += cells.size();
    packed_bytes += std::min(packed.size(), cells.size());
  }
  return share_of(packed_bytes, cells_bytes);
}

Result<double> patch_share(const PatchHead& head, const SnapshotSource& base, const SnapshotSource& result) {
  if (head.pieces.empty()) return 1.0;
  std::vector<std::byte> before, after, segment;
  SegmentEncoder encoder;
  std::uint64_t cells_bytes = 0, segment_bytes = 0;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const SegmentRange range = sample(head, i, kPatchSampleBytes);
    after.resize(range.size_bytes);
    WC_TRY(result.read_at(range.result_offset, after));
    before.resize(range.has_base() ? range.size_bytes : 0);
    if (range.has_base()) WC_TRY(base.read_at(range.base_offset, before));
    segment.clear();
    static_cast<void>(encoder.encode(range, before, after, segment));
    cells_bytes += after.size();
    segment_bytes += segment.size();
  }
  return share_of(segment_bytes, cells_bytes);
}

}  // namespace weightcast
