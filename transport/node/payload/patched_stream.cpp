#include "transport/node/payload/patched_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/digest/content_digest.h"
#include "patch/apply/patch_applier.h"

namespace weightcast {

Result<std::unique_ptr<PatchedStream>> PatchedStream::make(VersionRecord record, FilesRef payload,
                                                           const Checksum& base_digest, std::uint64_t stream_bytes) {
  if (!record.digests.complete()) return fail(Errc::kCorrupt, Op::kVerify, "its record lacks digests of chunks");
  const Manifest& manifest = record.manifest;
  PatchIdentity identity{manifest.model_id, manifest.base_version, manifest.version, base_digest,
                         manifest.snapshot_digest};
  return std::unique_ptr<PatchedStream>(
      new PatchedStream(std::move(record), std::move(payload), std::move(identity), stream_bytes));
}

Status PatchedStream::read_chunk() {
  const Manifest& manifest = record_.manifest;
  const ChunkIndex chunk{next_chunk_};
  chunk_.resize(manifest.chunk_size(chunk));
  chunk_used_ = 0;
  WC_TRY(read_stream(*payload_, manifest.chunk_offset(chunk), chunk_));
  if (content_digest_of(chunk_) != record_.digests.chunks[chunk.value]) {
    return fail(Errc::kCorrupt, Op::kVerify, fmt::format("its chunk {} is not what was signed", chunk.value));
  }
  ++next_chunk_;
  return {};
}

Status PatchedStream::read_on() {
  while (!segment_ && reader_.end() == nullptr) {
    if (chunk_used_ == chunk_.size()) {
      if (next_chunk_ == record_.manifest.chunk_count()) {
        return fail(Errc::kCorrupt, Op::kDecode, "it ends before it is complete");
      }
      WC_TRY(read_chunk());
    }
    WC_ASSIGN(const std::size_t used, reader_.handle_bytes(Bytes(chunk_).subspan(chunk_used_)));
    chunk_used_ += used;
    if (!head_checked_ && reader_.head() != nullptr) {
      head_checked_ = true;
      WC_TRY(check_head(*reader_.head(), identity_, stream_bytes_, stream_bytes_));
    }
    segment_ = reader_.poll_segment();
  }
  return {};
}

Status PatchedStream::begin_segment() {
  WC_TRY(read_on());
  if (!segment_) return fail(Errc::kCorrupt, Op::kDecode, "it ends before the snapshot does");
  const SegmentRange& range = segment_->header().range;
  // Segments come in the order of the result. What moves would need the base's bytes out of their order.
  if (range.result_offset != done_bytes_ || (range.has_base() && range.base_offset != done_bytes_)) {
    return fail(Errc::kUnsupported, Op::kDecode, "it moves tensors within the files, which cannot be followed here");
  }
  WC_ASSIGN(decoder_, SegmentDecoder::start(segment_->view()));
  segment_left_ = range.size_bytes;
  return {};
}

Status PatchedStream::push(Bytes base, const Sink& result) {
  cells_.insert(cells_.end(), base.begin(), base.end());
  std::size_t used = 0;
  while (used < cells_.size()) {
    if (!decoder_) WC_TRY(begin_segment());
    const SegmentRange& range = segment_->header().range;
    std::size_t bytes = std::min<std::size_t>(cells_.size() - used, segment_left_);
    if (bytes < segment_left_) bytes -= bytes % geometry_of(range.kind).bytes;
    if (bytes == 0) break;
    const MutableBytes cells = MutableBytes(cells_).subspan(used, bytes);
    WC_TRY(decoder_->next(range.has_base() ? Bytes(cells) : Bytes(), cells));
    used += bytes;
    done_bytes_ += bytes;
    segment_left_ -= static_cast<std::uint32_t>(bytes);
    if (segment_left_ == 0) {
      WC_TRY(decoder_->finish());
      decoder_.reset();
      segment_.reset();
    }
    WC_TRY(result(cells));
  }
  cells_.erase(cells_.begin(), cells_.begin() + static_cast<std::ptrdiff_t>(used));
  return {};
}

Status PatchedStream::finish() {
  if (decoder_ || !cells_.empty()) return fail(Errc::kCorrupt, Op::kDecode, "the snapshot ends within a segment");
  WC_TRY(read_on());
  if (segment_) return fail(Errc::kCorrupt, Op::kDecode, "it goes on where the snapshot has ended");
  return {};
}

}  // namespace weightcast
