#include "patch/codec/segment_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace weightcast {
namespace {

// Below it, nothing but the sparse code can be short: planes take at least a bit for a cell that may be anything.
constexpr double kSparseShareMax = 0.25;
// Where a quarter of the BF16 cells change, a list takes 4.5 bits for each and planes 5.5. Planes then take twice the
// list's time to encode and as much to apply. The bound also holds the encoder's buffers to twice the cells.
constexpr std::size_t kListedCellsPerChange = 4;
// So that a short range, of a norm or a bias, is no matter of a few changes.
constexpr std::size_t kListedChangesAnyway = 64;

std::uint32_t count_changes(const Kernels& kernels, unsigned width, Bytes before, Bytes after) {
  ChunkChanges changed;
  std::size_t count = 0;
  for (std::size_t at = 0; at < after.size(); at += kChunkCells * width) {
    const std::size_t cells = std::min(kChunkCells * width, after.size() - at) / width;
    count += kernels.diff(width, before.data() + at, after.data() + at, cells, changed);
  }
  return std::uint32_t(count);
}

/// The changed cells' indices, from `first_cell` on, with their old and new values.
void gather(std::size_t width, const std::byte* before, const std::byte* after, std::uint32_t first_cell,
            std::span<const std::uint16_t> changed, std::uint32_t* cells, std::byte* old_values,
            std::byte* new_values) {
  with_cell_bytes(width, [=]<unsigned CellBytes>() {
    for (std::size_t i = 0; i < changed.size(); ++i) {
      const std::size_t at = changed[i] * CellBytes;
      cells[i] = first_cell + changed[i];
      std::memcpy(old_values + i * CellBytes, before + at, CellBytes);
      std::memcpy(new_values + i * CellBytes, after + at, CellBytes);
    }
  });
}

}  // namespace

std::size_t listed_changes_max(const SegmentRange& range) {
  return range.size_bytes / geometry_of(range.kind).bytes / kListedCellsPerChange + kListedChangesAnyway;
}

void SegmentEncoder::try_planes(const SegmentRange& range, SegmentMode mode, Bytes after, const std::byte* before,
                                Bytes& best, SegmentHeader& header) {
  std::vector<std::byte>& payload = mode == SegmentMode::kXorPlanes ? xor_payload_ : planes_payload_;
  payload.clear();
  planes_.encode(range.kind, after, before, best.size(), payload);
  if (payload.size() >= best.size()) return;
  best = payload;
  header.mode = mode;
}

SegmentHeader SegmentEncoder::encode_whole(const SegmentRange& range, Bytes after, std::vector<std::byte>& out) {
  SegmentHeader header;
  header.range = range;
  header.mode = SegmentMode::kPlanes;
  header.changed_cells = range.size_bytes / geometry_of(range.kind).bytes;
  header.result_digest = checksum_of(after);
  const std::size_t begin = out.size(), payload = begin + kSegmentHeaderBytes;
  out.reserve(payload + after.size());
  out.resize(payload);
  planes_.encode(range.kind, after, nullptr, payload + after.size(), out);
  if (out.size() - payload >= after.size()) {
    out.resize(payload);
    out.insert(out.end(), after.begin(), after.end());
    header.mode = SegmentMode::kRaw;
  }
  close_segment(header, begin, out);
  return header;
}

SegmentHeader SegmentEncoder::encode(const SegmentRange& range, Bytes before, Bytes after,
                                     std::vector<std::byte>& out) {
  WC_CHECK(after.size() == range.size_bytes && before.size() == (range.has_base() ? range.size_bytes : 0));
  if (!range.has_base()) return encode_whole(range, after, out);
  if (form_ == SparseForm::kListed) {
    if (const std::optional<SegmentHeader> listed = encode_listed(range, before, after, out)) return *listed;
    sparse_payload_.clear();
    SparseEncoder::Outcome dense;
    dense.changed_cells = count_changes(kernels_, geometry_of(range.kind).bytes, before, after);
    dense.result_digest = checksum_of(after);
    dense.too_many = true;
    return choose(range, dense, before, after, out);
  }
  sparse_payload_.clear();
  return choose(range, sparse_.encode(range.kind, before, after, sparse_payload_), before, after, out);
}

std::optional<SegmentHeader> SegmentEncoder::encode_listed(const SegmentRange& range, Bytes before, Bytes after,
                                                           std::vector<std::byte>& out) {
  const std::size_t width = geometry_of(range.kind).bytes, chunk_bytes = kChunkCells * width;
  const std::size_t changes_max = listed_changes_max(range);
  std::size_t found = 0;
  for (std::size_t at = 0; at < after.size(); at += chunk_bytes) {
    const std::size_t count = std::min(chunk_bytes, after.size() - at) / width;
    ChunkPrefetch<false> prefetch(before.data() + at + chunk_bytes, after.data() + at + chunk_bytes, chunk_bytes);
    prefetch.finish();
    const std::size_t changed = kernels_.diff(unsigned(width), before.data() + at, after.data() + at, count, changed_);
    if (changed > changes_max - found) return std::nullopt;
    // Room that a range of narrower cells has left may be enough for the indices alone.
    if (found_.cells.size() < found + changed || found_.values.size() < (found + changed) * width) {
      // More at once than a chunk has: the vectors' own growth would be by what was asked for.
      const std::size_t room = std::max(found_.cells.size(), std::min(2 * found, changes_max) + kChunkCells);
      found_.cells.resize(room);
      found_.values.resize(room * width);
      old_values_.resize(room * width);
    }
    gather(width, before.data() + at, after.data() + at, std::uint32_t(at / width), std::span(changed_).first(changed),
           found_.cells.data() + found, old_values_.data() + found * width, found_.values.data() + found * width);
    found += changed;
  }
  // The list is ours, in order and within the range.
  Result<SegmentHeader> header =
      listed_.encode(range, std::span(found_.cells).first(found), Bytes(old_values_).first(found * width),
                     Bytes(found_.values).first(found * width), out);
  WC_CHECK(header.has_value());
  return *header;
}

SegmentHeader SegmentEncoder::choose(const SegmentRange& range, const SparseEncoder::Outcome& outcome, Bytes before,
                                     Bytes after, std::vector<std::byte>& out) {
  SegmentHeader header;
  header.range = range;
  header.mode = SegmentMode::kRaw;
  Bytes best = after;
  if (outcome.changed_cells == 0) {
    header.mode = SegmentMode::kUnchanged;
    best = {};
  } else if (!outcome.too_many && sparse_payload_.size() < range.size_bytes) {
    header.mode = SegmentMode::kSparse;
    best = sparse_payload_;
  }
  header.changed_cells = outcome.changed_cells;
  header.result_digest = outcome.result_digest;
  const auto is_dense = [&] { return double(best.size()) > kSparseShareMax * range.size_bytes; };
  bool dense = is_dense();
  // What dense changes take is as much as planes will.
  if (dense) sparse_.release();
  if (dense || outcome.clustered) try_planes(range, SegmentMode::kXorPlanes, after, before.data(), best, header);
  dense = dense && is_dense();
  if (dense) try_planes(range, SegmentMode::kPlanes, after, nullptr, best, header);
  header.payload_bytes = std::uint32_t(best.size());
  write_segment(header, best, out);
  return header;
}

Result<SegmentDecoder> SegmentDecoder::start(const Segment& segment, const Kernels& kernels) {
  const SegmentHeader& header = segment.header;
  const SegmentRange& range = header.range;
  switch (header.mode) {
    case SegmentMode::kUnchanged: break;
    case SegmentMode::kSparse: {
      WC_ASSIGN(SparseDecoder sparse, SparseDecoder::start(range.kind, segment.payload, header.changed_cells, kernels));
      return SegmentDecoder(header, std::move(sparse));
    }
    case SegmentMode::kXorPlanes:
    case SegmentMode::kPlanes: {
      WC_ASSIGN(PlanesDecoder planes, PlanesDecoder::start(kernels, range.kind, segment.payload, range.size_bytes));
      return SegmentDecoder(header, std::move(planes));
    }
    case SegmentMode::kRaw:
      if (segment.payload.size() != range.size_bytes) {
        return fail(Errc::kCorrupt, Op::kDecode, "raw cells of the wrong length");
      }
      return SegmentDecoder(header, segment.payload);
    case SegmentMode::kListed: {
      List list;
      WC_TRY(ListedDecoder(kernels).decode(segment, list.changes));
      return SegmentDecoder(header, std::move(list));
    }
  }
  return SegmentDecoder(header, Nothing());
}

Status SegmentDecoder::next(Bytes before, MutableBytes after) {
  WC_CHECK(before.size() == (header_.range.has_base() ? after.size() : 0));
  WC_CHECK(after.size() <= header_.range.size_bytes - done_bytes_);
  if (auto* sparse = std::get_if<SparseDecoder>(&payload_)) {
    // The old cells steer its every step: what it takes for damage is theirs.
    if (!sparse->next(before, after, digest_)) return mismatch();
  } else {
    if (auto* planes = std::get_if<PlanesDecoder>(&payload_)) {
      WC_TRY(planes->next(header_.mode == SegmentMode::kXorPlanes ? before : Bytes(), after));
    } else {
      const auto* raw = std::get_if<Bytes>(&payload_);
      const Bytes from = raw != nullptr ? raw->subspan(done_bytes_, after.size()) : before;
      if (after.data() != from.data()) std::memcpy(after.data(), from.data(), after.size());
      if (auto* list = std::get_if<List>(&payload_)) next_listed(*list, after);
    }
    if (!digests_changes_) digest_.update(after);
  }
  done_bytes_ += std::uint32_t(after.size());
  return {};
}

void SegmentDecoder::next_listed(List& list, MutableBytes cells) {
  const std::size_t width = geometry_of(header_.range.kind).bytes, first = list.next;
  list.next = resolve_window(header_.range.kind, list.changes, first, done_bytes_ / width, cells);
  digest_.update(Bytes(list.changes.values).subspan(first * width, (list.next - first) * width));
}

void SegmentDecoder::list_changes(CellChanges& changes) {
  WC_CHECK(tells_changes(header_.mode));
  changes.clear();
  if (auto* sparse = std::get_if<SparseDecoder>(&payload_)) sparse->list_changes(changes);
  if (auto* list = std::get_if<List>(&payload_)) list->told = &changes;
}

Status SegmentDecoder::finish() {
  WC_CHECK(done_bytes_ == header_.range.size_bytes);
  if (auto* planes = std::get_if<PlanesDecoder>(&payload_)) WC_TRY(planes->finish());
  const auto* sparse = std::get_if<SparseDecoder>(&payload_);
  if ((sparse != nullptr && !sparse->finish()) || digest_.digest() != header_.result_digest) return mismatch();
  auto* list = std::get_if<List>(&payload_);
  if (list != nullptr && list->told != nullptr) *list->told = std::move(list->changes);
  return {};
}

// The segment's own digest has been checked, so only the old cells can be other than they were.
Error SegmentDecoder::mismatch() const {
  const SegmentRange& range = header_.range;
  if (header_.mode == SegmentMode::kPlanes || header_.mode == SegmentMode::kRaw) {
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

Status decode_segment(const Segment& segment, Bytes before, MutableBytes after, const Kernels& kernels) {
  // A multiple of every cell's width, and small enough to stay in the cache while it is looked at several times.
  constexpr std::size_t kWindowBytes = 64 * 1024;
  WC_CHECK(after.size() == segment.header.range.size_bytes);
  WC_ASSIGN(SegmentDecoder decoder, SegmentDecoder::start(segment, kernels));
  for (std::size_t at = 0; at < after.size(); at += kWindowBytes) {
    const std::size_t bytes = std::min(kWindowBytes, after.size() - at);
    WC_TRY(decoder.next(before.empty() ? before : before.subspan(at, bytes), after.subspan(at, bytes)));
  }
  return decoder.finish();
}

}  // namespace weightcast
