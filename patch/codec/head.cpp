#include "patch/codec/head.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "patch/codec/byte_io.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast {
namespace {

constexpr int kZstdLevel = 3;
// Of kHeadMagic: all but the version.
constexpr std::uint64_t kHeadName = (std::uint64_t{1} << 56) - 1;
// A tensor takes at least this many bytes of a head: a count that the rest cannot hold is refused at once.
constexpr std::size_t kTensorBytesMin = 5;
// zstd: a block takes at least this many bytes, and gives at most this many.
constexpr std::size_t kBlockPackedBytesMin = 3;
constexpr std::size_t kBlockBytesMax = 128 * 1024;

Error corrupt(std::string what) {
  return fail(Errc::kCorrupt, Op::kParse, "patch head: " + std::move(what) + "; fetch it again");
}

Error too_large(std::string_view what, std::size_t limit) {
  return fail(Errc::kTooLarge, Op::kParse, fmt::format("patch head: it claims more than {} {}", limit, what));
}

CellKind kind_of(const TensorInfo& tensor) {
  const CellKind kind = cell_kind_of(tensor.dtype);
  return tensor.size_bytes % geometry_of(kind).bytes == 0 ? kind : CellKind::kRaw8;
}

// Cuts a stream into its tensors and what they leave out. False where the tensors are out of order or overlap.
bool cut_pieces(const std::vector<TensorInfo>& tensors, std::uint64_t size_bytes, std::vector<PatchPiece>& pieces) {
  std::uint64_t end = 0;
  const auto raw_until = [&](std::uint64_t offset) {
    if (offset > end) pieces.push_back({end, offset - end, kNoBase, CellKind::kRaw8, kNoTensor});
  };
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    if (tensor.offset_bytes < end || tensor.offset_bytes > size_bytes ||
        tensor.size_bytes > size_bytes - tensor.offset_bytes) {
      return false;
    }
    raw_until(tensor.offset_bytes);
    if (tensor.size_bytes > 0) pieces.push_back({tensor.offset_bytes, tensor.size_bytes, kNoBase, kind_of(tensor), i});
    end = tensor.offset_bytes + tensor.size_bytes;
  }
  raw_until(size_bytes);
  return true;
}

Result<std::vector<PatchPiece>> pieces_of(const SnapshotLayout& layout, const char* which) {
  std::vector<PatchPiece> pieces;
  if (!cut_pieces(layout.tensors, layout.size_bytes, pieces)) {
    return fail(
        Errc::kInvalidArgument, Op::kEncode,
        fmt::format("the {}'s tensors overlap, leave its stream or are not in the order of their bytes", which));
  }
  return pieces;
}

std::size_t segments_at_most(const PatchHead& head) {
  return std::size_t(head.result_bytes / head.segment_bytes) + 2 * head.pieces.size();
}

// What a reader refuses is not written.
Error name_too_long(std::string_view name) {
  return fail(Errc::kTooLarge, Op::kEncode,
              fmt::format("the name {} has {} bytes, above the limit of {}", quoted_name(name), name.size(),
                          kTensorNameBytesMax));
}

// What is compressed.
std::vector<std::byte> body_of(const PatchHead& head) {
  std::vector<std::byte> body;
  ByteWriter writer(body);
  writer.text(head.identity.model_id);
  writer.varint(head.identity.base_version.value);
  writer.varint(head.identity.version.value);
  writer.digest(head.identity.base_digest);
  writer.digest(head.identity.result_digest);
  writer.varint(head.base_bytes);
  writer.varint(head.result_bytes);
  writer.varint(head.segment_bytes);
  writer.varint(head.tensors.size());
  std::uint64_t end = 0;
  for (const TensorInfo& tensor : head.tensors) {
    writer.text(tensor.name);
    writer.text(tensor.dtype);
    writer.varint(tensor.shape.size());
    for (const std::uint64_t extent : tensor.shape) writer.varint(extent);
    writer.varint(tensor.offset_bytes - end);
    writer.varint(tensor.size_bytes);
    end = tensor.offset_bytes + tensor.size_bytes;
  }
  for (const PatchPiece& piece : head.pieces) writer.varint(piece.base_offset == kNoBase ? 0 : piece.base_offset + 1);
  writer.varint(head.removed.size());
  for (const std::string& name : head.removed) writer.text(name);
  return body;
}

// What a reader refuses is not written.
Status check_limits(const PatchHead& head) {
  const auto exceeds = [](std::string_view what, std::size_t limit) {
    return fail(Errc::kTooLarge, Op::kEncode, fmt::format("a patch's head holds at most {} {}", limit, what));
  };
  if (head.tensors.size() > kHeadTensorsMax) return exceeds("tensors", kHeadTensorsMax);
  if (head.removed.size() > kHeadRemovedMax) return exceeds("removed tensors", kHeadRemovedMax);
  std::size_t extents = 0;
  for (const TensorInfo& tensor : head.tensors) {
    if (tensor.shape.size() > kTensorRankMax) return exceeds("dimensions of a tensor", kTensorRankMax);
    extents += tensor.shape.size();
  }
  if (extents > kHeadExtentsMax) return exceeds("dimensions of all tensors", kHeadExtentsMax);
  if (segments_at_most(head) > kSegmentsMax) {
    return fail(
        Errc::kTooLarge, Op::kEncode,
        fmt::format("{} bytes make more than {} segments; choose longer ones", head.result_bytes, kSegmentsMax));
  }
  if (body_of(head).size() > kHeadBytesMax) return exceeds("bytes", kHeadBytesMax);
  return {};
}

Status check_names(const SnapshotLayout& layout) {
  for (const TensorInfo& tensor : layout.tensors) {
    if (tensor.name.size() > kTensorNameBytesMax) return name_too_long(tensor.name);
    if (tensor.dtype.size() > kTensorNameBytesMax) return name_too_long(tensor.dtype);
  }
  return {};
}

}  // namespace

Result<PatchHead> make_head(PatchIdentity identity, const SnapshotLayout& base, const SnapshotLayout& result,
                            std::uint32_t segment_bytes) {
  if (segment_bytes < kSegmentBytesMin || segment_bytes > kSegmentBytesMax) {
    return fail(
        Errc::kInvalidArgument, Op::kEncode,
        fmt::format("a segment size of {} is not within {} and {}", segment_bytes, kSegmentBytesMin, kSegmentBytesMax));
  }
  PatchHead head;
  head.identity = std::move(identity);
  head.base_bytes = base.size_bytes;
  head.result_bytes = result.size_bytes;
  head.segment_bytes = segment_bytes;
  head.tensors = result.tensors;
  WC_ASSIGN(const std::vector<PatchPiece> base_pieces, pieces_of(base, "base"));
  WC_ASSIGN(head.pieces, pieces_of(result, "result"));
  WC_TRY(check_names(base));
  WC_TRY(check_names(result));
  if (head.identity.model_id.size() > kTensorNameBytesMax) return name_too_long(head.identity.model_id);

  std::map<std::string_view, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : base.tensors) by_name[tensor.name] = &tensor;
  std::vector<const PatchPiece*> base_raw;
  for (const PatchPiece& piece : base_pieces) {
    if (piece.tensor == kNoTensor) base_raw.push_back(&piece);
  }
  std::size_t raw = 0;
  for (PatchPiece& piece : head.pieces) {
    if (piece.tensor == kNoTensor) {
      if (raw < base_raw.size() && base_raw[raw]->size_bytes == piece.size_bytes)
        piece.base_offset = base_raw[raw]->result_offset;
      ++raw;
      continue;
    }
    const TensorInfo& tensor = head.tensors[piece.tensor];
    const auto old = by_name.find(tensor.name);
    if (old != by_name.end() && old->second->dtype == tensor.dtype && old->second->size_bytes == tensor.size_bytes) {
      piece.base_offset = old->second->offset_bytes;
    }
  }
  std::set<std::string_view> kept;
  for (const TensorInfo& tensor : head.tensors) kept.insert(tensor.name);
  for (const TensorInfo& tensor : base.tensors) {
    if (!kept.contains(tensor.name)) head.removed.push_back(tensor.name);
  }
  WC_TRY(check_limits(head));
  return head;
}

std::vector<SegmentRange> plan_segments(const PatchHead& head) {
  std::vector<SegmentRange> ranges;
  const auto cut = [&](const PatchPiece& run) {
    const std::uint64_t parts = (run.size_bytes + head.segment_bytes - 1) / head.segment_bytes;
    // Whole cache lines, and so whole cells.
    const std::uint64_t part_bytes = ((run.size_bytes + parts - 1) / parts + 63) / 64 * 64;
    for (std::uint64_t at = 0; at < run.size_bytes; at += part_bytes) {
      const std::uint64_t base_offset = run.base_offset == kNoBase ? kNoBase : run.base_offset + at;
      const auto size = std::uint32_t(std::min(part_bytes, run.size_bytes - at));
      ranges.push_back({std::uint32_t(ranges.size()), run.result_offset + at, base_offset, size, run.kind});
    }
  };
  for (std::size_t i = 0; i < head.pieces.size();) {
    PatchPiece run = head.pieces[i++];
    for (; i < head.pieces.size() && run.size_bytes < head.segment_bytes / 2; ++i) {
      const PatchPiece& next = head.pieces[i];
      const bool adjacent = run.base_offset == kNoBase ? next.base_offset == kNoBase
                                                       : next.base_offset == run.base_offset + run.size_bytes;
      if (next.kind != run.kind || !adjacent) break;
      run.size_bytes += next.size_bytes;
    }
    cut(run);
  }
  return ranges;
}

void write_head(const PatchHead& head, std::vector<std::byte>& out) {
  const std::vector<std::byte> body = body_of(head);
  std::vector<std::byte> packed(ZSTD_compressBound(body.size()));
  const std::size_t packed_bytes = ZSTD_compress(packed.data(), packed.size(), body.data(), body.size(), kZstdLevel);
  WC_CHECK(ZSTD_isError(packed_bytes) == 0);
  packed.resize(packed_bytes);
  std::vector<std::byte> frame;
  ByteWriter framer(frame);
  framer.fixed((kHeadMagic & kHeadName) | std::uint64_t{head.format_version} << 56);
  framer.fixed(std::uint32_t(packed.size()));
  framer.fixed(std::uint32_t(body.size()));
  ChecksumStream digest;
  digest.update(frame);
  digest.update(packed);
  framer.digest(digest.digest());
  out.insert(out.end(), frame.begin(), frame.end());
  out.insert(out.end(), packed.begin(), packed.end());
}

Result<std::size_t> peek_head(Bytes prefix) {
  ByteReader reader(prefix);
  const auto magic = reader.fixed<std::uint64_t>();
  const auto packed_bytes = reader.fixed<std::uint32_t>();
  const auto body_bytes = reader.fixed<std::uint32_t>();
  if (!reader.ok()) return corrupt("it is cut short");
  if ((magic & kHeadName) != (kHeadMagic & kHeadName)) return corrupt("these bytes are no patch");
  if (magic >> 56 == 0 || magic >> 56 > kFormatVersion) {
    return fail(Errc::kUnsupported, Op::kParse,
                fmt::format("the patch has format version {}, this build reads 1 to {}; update it", magic >> 56,
                            kFormatVersion));
  }
  if (packed_bytes > kHeadBytesMax || body_bytes > kHeadBytesMax) {
    return fail(Errc::kTooLarge, Op::kParse, fmt::format("patch head: it exceeds {} bytes", kHeadBytesMax));
  }
  return kHeadPrefixBytes + packed_bytes;
}

Result<PatchHead> read_head(Bytes frame) {
  WC_ASSIGN(const std::size_t frame_bytes, peek_head(frame));
  if (frame.size() != frame_bytes) return corrupt("it is cut short or has bytes left over");
  constexpr std::size_t kFieldBytes = kHeadPrefixBytes - Checksum::kBytes;
  ByteReader prefix(frame.first(kHeadPrefixBytes));
  (void)prefix.bytes(kFieldBytes - 4);
  const auto body_bytes = prefix.fixed<std::uint32_t>();
  ChecksumStream digest;
  digest.update(frame.first(kFieldBytes));
  digest.update(frame.subspan(kHeadPrefixBytes));
  if (prefix.digest() != digest.digest()) return corrupt("its digest does not match");

  // The digest matches, but anyone can make one: every field is checked as if it did not.
  const Bytes packed = frame.subspan(kHeadPrefixBytes);
  if (body_bytes / kBlockBytesMax > packed.size() / kBlockPackedBytesMin)
    return corrupt("it is too short for the length that it claims");
  if (ZSTD_getFrameContentSize(packed.data(), packed.size()) != body_bytes)
    return corrupt("its length is not what it says");
  std::vector<std::byte> body(body_bytes);
  if (ZSTD_decompress(body.data(), body.size(), packed.data(), packed.size()) != body.size()) {
    return corrupt("it does not decompress");
  }
  ByteReader reader(body);
  PatchHead head;
  head.format_version = std::to_integer<std::uint8_t>(frame[7]);
  head.identity.model_id = reader.text(kTensorNameBytesMax);
  head.identity.base_version = Version(reader.varint());
  head.identity.version = Version(reader.varint());
  head.identity.base_digest = reader.digest();
  head.identity.result_digest = reader.digest();
  head.base_bytes = reader.varint();
  head.result_bytes = reader.varint();
  const std::uint64_t segment_bytes = reader.varint();
  const std::uint64_t tensors = reader.varint();
  if (!reader.ok() || tensors > reader.remaining() / kTensorBytesMin) return corrupt("a field is cut short");
  if (tensors > kHeadTensorsMax) return too_large("tensors", kHeadTensorsMax);
  if (segment_bytes < kSegmentBytesMin || segment_bytes > kSegmentBytesMax)
    return corrupt("its segment size is out of range");
  head.segment_bytes = std::uint32_t(segment_bytes);
  head.tensors.resize(std::size_t(tensors));
  std::uint64_t end = 0, extents = 0;
  for (TensorInfo& tensor : head.tensors) {
    tensor.name = reader.text(kTensorNameBytesMax);
    tensor.dtype = reader.text(kTensorNameBytesMax);
    const std::uint64_t rank = reader.varint();
    if (rank > kTensorRankMax) return too_large("dimensions of a tensor", kTensorRankMax);
    if ((extents += rank) > kHeadExtentsMax) return too_large("dimensions of all tensors", kHeadExtentsMax);
    tensor.shape.resize(std::size_t(rank));
    for (std::uint64_t& extent : tensor.shape) extent = reader.varint();
    const std::uint64_t gap = reader.varint();
    tensor.size_bytes = reader.varint();
    if (!reader.ok() || gap > head.result_bytes - end || tensor.size_bytes > head.result_bytes - end - gap) {
      return corrupt("a tensor lies outside the stream");
    }
    tensor.offset_bytes = end + gap;
    end = tensor.offset_bytes + tensor.size_bytes;
  }
  if (!cut_pieces(head.tensors, head.result_bytes, head.pieces)) return corrupt("its tensors overlap");
  if (segments_at_most(head) > kSegmentsMax) return too_large("segments", kSegmentsMax);
  for (PatchPiece& piece : head.pieces) {
    const std::uint64_t base = reader.varint();
    if (base == 0) continue;
    piece.base_offset = base - 1;
    if (piece.base_offset > head.base_bytes || piece.size_bytes > head.base_bytes - piece.base_offset) {
      return corrupt("a tensor's old cells lie outside the base");
    }
  }
  const std::uint64_t removed = reader.varint();
  if (!reader.ok() || removed > reader.remaining()) return corrupt("a field is cut short");
  if (removed > kHeadRemovedMax) return too_large("removed tensors", kHeadRemovedMax);
  head.removed.reserve(std::size_t(removed));
  for (std::uint64_t i = 0; i < removed; ++i) head.removed.push_back(reader.text(kTensorNameBytesMax));
  if (!reader.ok() || reader.remaining() != 0) return corrupt("it is cut short or has bytes left over");
  return head;
}

Status check_end(const PatchEnd& end, std::span<const Checksum> results) {
  ChecksumStream all;
  for (const Checksum& digest : results) all.update(digest.bytes);
  if (end.segments == results.size() && all.digest() == end.results_digest) return {};
  return fail(Errc::kCorrupt, Op::kVerify, "the patch's end belongs to other segments; fetch the patch again");
}

void write_end(const PatchEnd& end, std::vector<std::byte>& out) {
  const std::size_t begin = out.size();
  ByteWriter writer(out);
  writer.fixed(kEndMagic);
  writer.fixed(end.segments);
  writer.digest(end.results_digest);
  writer.digest(checksum_of(Bytes(out).subspan(begin)));
}

Result<PatchEnd> read_end(Bytes frame) {
  const auto damaged = [] {
    return fail(Errc::kCorrupt, Op::kParse, "patch end: its digest or its length does not match; fetch it again");
  };
  if (frame.size() != kEndBytes) return damaged();
  ByteReader reader(frame);
  const auto magic = reader.fixed<std::uint32_t>();
  PatchEnd end;
  end.segments = reader.fixed<std::uint32_t>();
  end.results_digest = reader.digest();
  if (magic != kEndMagic || reader.digest() != checksum_of(frame.first(kEndBytes - Checksum::kBytes))) return damaged();
  return end;
}

}  // namespace weightcast
