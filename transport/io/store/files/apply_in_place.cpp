#include "transport/io/store/files/apply_in_place.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/units.h"
#include "patch/apply/patch_applier.h"

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

/// Cells become new ones where they are.
class InPlaceStreams final : public ApplyStreams {
 public:
  explicit InPlaceStreams(VersionFiles& files) : files_(files) {}
  Status read_base(std::uint64_t offset, MutableBytes cells) override { return read_stream(files_, offset, cells); }
  Status write_result(std::uint64_t offset, Bytes after) override { return write_stream(files_, offset, after); }

 private:
  VersionFiles& files_;
};

/// `start` gets the plan once the head fits, then `apply` each segment, by `threads` at once.
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

}  // namespace

Status apply_in_place(VersionFiles& files, VersionFiles& patch, const Manifest& manifest, const Checksum& base_digest,
                      unsigned threads) {
  InPlaceStreams streams(files);
  std::optional<PatchApplier> applier;
  const auto start = [&](std::vector<SegmentRange> plan) -> Status {
    applier.emplace(std::move(plan), files.table(), streams, ApplyOptions{.window_bytes = kWriteBytes});
    return {};
  };
  const auto apply = [&](const Segment& segment) { return applier->apply(segment); };
  const Result<PatchEnd> end = read_patch(patch, manifest, base_digest, files.table(), threads, start, apply);
  // The base is what its digest says, so what does not fit it is the patch.
  if (!end.has_value() && end.error().code == Errc::kWrongBase) {
    return fail(Errc::kCorrupt, Op::kDecode, end.error().detail);
  }
  if (!end.has_value()) return end.error();
  WC_ASSIGN(const Checksum digest, applier->finish(*end));
  if (digest == manifest.snapshot_digest) return {};
  return fail(Errc::kCorrupt, Op::kVerify, "its result does not match the snapshot's digest");
}

}  // namespace weightcast
