#include "transport/node/packed_share.h"

#include <algorithm>
#include <vector>

#include "base/units.h"
#include "patch/codec/planes.h"
#include "patch/snapshot/snapshot_stream.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kSamples = 32;
// Tables of frequencies are a fiftieth of what BF16 cells of that many bytes take.
constexpr std::uint64_t kSampleBytes = 32 * kKiB;

}  // namespace

Result<double> packed_share(const SnapshotSource& snapshot) {
  WC_ASSIGN(const PatchHead head, make_head({}, SnapshotLayout{}, layout_of(snapshot)));
  std::vector<std::byte> cells, packed;
  PlanesEncoder planes(best_kernels());
  std::uint64_t cells_bytes = 0, packed_bytes = 0;
  auto piece = head.pieces.begin();
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::uint64_t at = snapshot.size_bytes() / kSamples * i;
    while (piece->result_offset + piece->size_bytes <= at) ++piece;  // they cover the stream
    const std::uint64_t width = geometry_of(piece->kind).bytes;
    const std::uint64_t begin = (at - piece->result_offset) / width * width;
    cells.resize(std::min(kSampleBytes, piece->size_bytes - begin) / width * width);
    WC_TRY(snapshot.read_at(piece->result_offset + begin, cells));
    packed.clear();
    planes.encode(piece->kind, cells, nullptr, cells.size(), packed);
    cells_bytes += cells.size();
    packed_bytes += std::min(packed.size(), cells.size());
  }
  return cells_bytes == 0 ? 1.0 : double(packed_bytes) / double(cells_bytes);
}

}  // namespace weightcast
