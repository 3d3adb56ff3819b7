#include "patch/apply/fold.h"

#include <fmt/format.h>

#include <algorithm>

namespace weightcast {
namespace {

/// One patch in memory: its head, and where each segment stands.
struct IndexedPatch {
  PatchHead head;
  std::vector<OwnedSegment> segments;
};

Result<IndexedPatch> index_patch(Bytes patch) {
  PatchReader reader;
  IndexedPatch indexed;
  while (!patch.empty()) {
    WC_ASSIGN(const std::size_t taken, reader.handle_bytes(patch));
    patch = patch.subspan(taken);
    if (std::optional<OwnedSegment> segment = reader.poll_segment()) {
      if (segment->header().range.index != indexed.segments.size()) {
        return fail(Errc::kInvalidArgument, Op::kEncode, "a patch to be folded has its segments out of order");
      }
      indexed.segments.push_back(std::move(*segment));
    }
  }
  if (reader.end() == nullptr || reader.end()->segments != indexed.segments.size()) {
    return fail(Errc::kCorrupt, Op::kParse, "a patch to be folded is cut short; fetch the rest");
  }
  indexed.head = *reader.head();
  return indexed;
}

/// The last version, made range by range from the base and the patches.
class FoldedSource final : public ByteSource {
 public:
  FoldedSource(const std::vector<IndexedPatch>& patches, const std::vector<SegmentRange>& plan, const ByteSource& base,
               const Kernels& kernels)
      : patches_(patches), plan_(plan), base_(base), kernels_(kernels) {}

  std::uint64_t size_bytes() const override { return patches_.back().head.result_bytes; }

  /// Only ever asked for whole segments, by the encoder.
  Result<Bytes> view(std::uint64_t offset, std::size_t size, std::vector<std::byte>& scratch) const override {
    const auto range = std::lower_bound(plan_.begin(), plan_.end(), offset,
                                        [](const SegmentRange& r, std::uint64_t at) { return r.result_offset < at; });
    WC_CHECK(range != plan_.end() && range->result_offset == offset && range->size_bytes == size);
    scratch.resize(size);
    Bytes before;
    std::vector<std::byte> base_scratch;
    if (range->has_base()) {
      WC_ASSIGN(before, base_.view(range->base_offset, size, base_scratch));
    }
    for (const IndexedPatch& patch : patches_) {
      WC_TRY(decode_segment(patch.segments[range->index].view(), before, scratch, kernels_));
      if (range->has_base()) before = scratch;
    }
    return Bytes(scratch);
  }

 private:
  const std::vector<IndexedPatch>& patches_;
  const std::vector<SegmentRange>& plan_;
  const ByteSource& base_;
  const Kernels& kernels_;
};

}  // namespace

Result<PatchSummary> fold_patches(std::span<const Bytes> patches, const ByteSource& base, const EncodeOptions& options,
                                  const PatchSink& sink) {
  if (patches.empty()) return fail(Errc::kInvalidArgument, Op::kEncode, "there are no patches to fold");
  std::vector<IndexedPatch> indexed;
  for (const Bytes patch : patches) {
    WC_ASSIGN(IndexedPatch next, index_patch(patch));
    indexed.push_back(std::move(next));
  }
  const std::vector<SegmentRange> plan = plan_segments(indexed.front().head);
  for (std::size_t i = 1; i < indexed.size(); ++i) {
    const PatchIdentity& first = indexed[i - 1].head.identity;
    const PatchIdentity& second = indexed[i].head.identity;
    if (first.model_id != second.model_id || first.version != second.base_version ||
        first.result_digest != second.base_digest) {
      return fail(Errc::kInvalidArgument, Op::kEncode,
                  fmt::format("a patch to version {} cannot be followed by one from version {}", first.version.value,
                              second.base_version.value));
    }
    const std::vector<SegmentRange> other = plan_segments(indexed[i].head);
    // A segment without base in any patch must be so in all, and each must begin where the one before it ended.
    const bool same = other == plan && indexed[i].head.base_bytes == indexed[i - 1].head.result_bytes;
    bool stays = true;
    for (const SegmentRange& range : other)
      stays = stays && (!range.has_base() || range.base_offset == range.result_offset);
    if (!same || !stays) {
      return fail(
          Errc::kUnsupported, Op::kEncode,
          fmt::format("the layout changes between versions {} and {}; make the last snapshot and compare it instead",
                      second.base_version.value, second.version.value));
    }
  }
  PatchHead head = indexed.back().head;
  head.identity.base_version = indexed.front().head.identity.base_version;
  head.identity.base_digest = indexed.front().head.identity.base_digest;
  head.base_bytes = indexed.front().head.base_bytes;
  const FoldedSource result(indexed, plan, base, *options.kernels);
  return encode_patch(head, base, result, options, sink);
}

}  // namespace weightcast
