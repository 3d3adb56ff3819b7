#include "transport/io/store/files/read_patch.h"

#include <algorithm>
#include <utility>

#include "base/parallel.h"
#include "base/units.h"

namespace weightcast {
namespace {

constexpr std::size_t kReadBytes = 256 * kKiB;

Status apply_all(std::vector<OwnedSegment>& segments, unsigned threads,
                 const std::function<Status(const Segment&)>& apply) {
  Status status =
      for_each_until_error(segments.size(), threads, [&](std::size_t i) { return apply(segments[i].view()); });
  segments.clear();
  return status;
}

}  // namespace

Result<PatchEnd> read_patch(VersionFiles& patch, const Manifest& manifest, const Checksum& base_digest,
                            const FileTable& table, unsigned threads,
                            const std::function<Status(std::vector<SegmentRange>)>& start,
                            const std::function<Status(const Segment&)>& apply) {
  const PatchIdentity identity{manifest.model_id, manifest.base_version, manifest.version, base_digest,
                               manifest.snapshot_digest};
  PatchReader reader;
  bool started = false;
  std::vector<OwnedSegment> segments;
  std::vector<std::byte> buffer(kReadBytes);
  for (std::uint64_t at = 0; at < manifest.payload_bytes;) {
    Bytes piece = Bytes(buffer).first(std::min<std::uint64_t>(buffer.size(), manifest.payload_bytes - at));
    WC_TRY(read_stream(patch, at, MutableBytes(buffer).first(piece.size())));
    at += piece.size();
    while (!piece.empty()) {
      WC_ASSIGN(const std::size_t used, reader.handle_bytes(piece));
      piece = piece.subspan(used);
      if (reader.head() != nullptr && !std::exchange(started, true)) {
        WC_TRY(check_head(*reader.head(), identity, table.size_bytes(), table.size_bytes()));
        WC_TRY(start(plan_segments(*reader.head())));
      }
      if (std::optional<OwnedSegment> segment = reader.poll_segment()) segments.push_back(std::move(*segment));
      if (segments.size() >= threads) WC_TRY(apply_all(segments, threads, apply));
    }
  }
  if (reader.end() == nullptr) return fail(Errc::kCorrupt, Op::kDecode, "the patch ends before it is complete");
  WC_TRY(apply_all(segments, threads, apply));
  return *reader.end();
}

}  // namespace weightcast
