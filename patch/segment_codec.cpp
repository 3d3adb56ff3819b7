#include "patch/segment_codec.h"

#include <fmt/format.h>

#include <cstring>

namespace weightcast {
namespace {

// Below it, nothing but the sparse code can be short: planes take at least a bit for a cell that may be anything.
constexpr double kSparseShareMax = 0.25;

Status copy_raw(Bytes payload, MutableBytes after) {
  if (payload.size() != after.size()) return fail(Errc::kCorrupt, Op::kDecode, "raw cells of the wrong length");
  std::memcpy(after.data(), payload.data(), after.size());
  return {};
}

}  // namespace

void SegmentEncoder::consider(SegmentMode mode, SegmentHeader& header) {
  if (candidate_.size() < best_.size()) {
    best_.swap(candidate_);
    header.mode = mode;
  }
}

SegmentHeader SegmentEncoder::encode(const SegmentRange& range, Bytes before, Bytes after,
                                     std::vector<std::byte>& out) {
  WC_CHECK(after.size() == range.size_bytes && before.size() == (range.has_base() ? range.size_bytes : 0));
  SegmentHeader header;
  header.range = range;
  best_.clear();
  bool try_planes = true;
  if (range.has_base()) {
    const SparseEncoder::Outcome outcome = sparse_.encode(range.kind, before, after, best_);
    header.mode = outcome.changed_cells == 0 ? SegmentMode::kUnchanged
                  : outcome.too_many         ? SegmentMode::kRaw
                                             : SegmentMode::kSparse;
    if (outcome.too_many) best_.assign(after.begin(), after.end());
    header.changed_cells = outcome.changed_cells;
    header.result_digest = outcome.result_digest;
    const bool dense = double(best_.size()) > kSparseShareMax * range.size_bytes;
    if (dense || outcome.clustered) {
      candidate_.clear();
      encode_planes(range.kind, after, before.data(), best_.size(), candidate_);
      consider(SegmentMode::kXorPlanes, header);
    }
    try_planes = dense && double(best_.size()) > kSparseShareMax * range.size_bytes;
  } else {
    header.changed_cells = range.size_bytes / geometry_of(range.kind).bytes;
    header.result_digest = digest_of(after);
    best_.assign(after.begin(), after.end());
    header.mode = SegmentMode::kRaw;
  }
  if (try_planes) {
    candidate_.clear();
    encode_planes(range.kind, after, nullptr, best_.size(), candidate_);
    consider(SegmentMode::kPlanes, header);
  }
  if (best_.size() >= after.size()) {
    best_.assign(after.begin(), after.end());
    header.mode = SegmentMode::kRaw;
  }
  header.payload_bytes = std::uint32_t(best_.size());
  write_segment(header, best_, out);
  return header;
}

Status decode_segment(const Segment& segment, Bytes before, MutableBytes after, const Kernels& kernels) {
  const SegmentHeader& header = segment.header;
  const SegmentRange& range = header.range;
  WC_CHECK(after.size() == range.size_bytes && before.size() == (range.has_base() ? range.size_bytes : 0));
  Digest digest;
  Status decoded;
  switch (header.mode) {
    case SegmentMode::kUnchanged:
      if (after.data() != before.data()) std::memcpy(after.data(), before.data(), after.size());
      break;
    case SegmentMode::kSparse:
      decoded = decode_sparse(range.kind, segment.payload, header.changed_cells, before, after, kernels, digest);
      break;
    case SegmentMode::kXorPlanes: decoded = decode_planes(range.kind, segment.payload, before.data(), after); break;
    case SegmentMode::kPlanes: decoded = decode_planes(range.kind, segment.payload, nullptr, after); break;
    case SegmentMode::kRaw: decoded = copy_raw(segment.payload, after); break;
  }
  if (header.mode != SegmentMode::kSparse) {
    WC_TRY(decoded);
    digest = digest_of(after);
  }
  if (decoded && digest == header.result_digest) return {};
  // The segment's own digest has been checked, so only the old cells can be other than they were, and they steer the
  // sparse decoder's every step: what it reports as damage is theirs too.
  if (header.mode == SegmentMode::kPlanes || header.mode == SegmentMode::kRaw) {
    return fail(
        Errc::kCorrupt, Op::kDecode,
        fmt::format("patch segment {}: its cells do not match their digest; fetch the patch again", range.index));
  }
  return fail(
      Errc::kWrongBase, Op::kDecode,
      fmt::format("patch segment {}: the base's {} bytes at {} are not those that it was made from; verify the base, "
                  "and fetch it again where it is damaged",
                  range.index, range.size_bytes, range.base_offset));
}

}  // namespace weightcast
