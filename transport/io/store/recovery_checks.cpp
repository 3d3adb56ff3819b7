#include "transport/io/store/recovery_checks.h"

#include <mutex>

#include "base/parallel.h"
#include "transport/io/store/readable.h"
#include "transport/io/store/snapshot_check.h"

namespace weightcast {
namespace {

// Below this a second thread takes longer to start than it saves.
constexpr std::uint64_t kParallelBytesMin = 64 * kMiB;

/// Whether any byte of [offset, offset + length) of the stream was ever written. What is not known counts as written.
bool has_data(VersionFiles& files, std::uint64_t offset, std::uint64_t length) {
  for (const FilePiece& piece : files.table().pieces(offset, length)) {
    const Result<FileRef> file = files.file(piece.file);
    if (!file.has_value()) return true;
    const Result<std::optional<std::uint64_t>> data = (*file)->next_data(piece.offset_bytes);
    if (!data.has_value()) return true;
    // Else nothing but a hole, up to the piece's end at least.
    if (*data && **data < piece.offset_bytes + piece.size_bytes) return true;
  }
  return false;
}

}  // namespace

unsigned threads_for(std::uint64_t bytes, unsigned threads_max) { return bytes >= kParallelBytesMin ? threads_max : 1; }

Result<ChunkSet> verify_chunks(const VersionRecord& record, VersionFiles& files, unsigned threads) {
  const Manifest& manifest = record.manifest;
  std::mutex mutex;  // guards `held` and `status`
  ChunkSet held(manifest.chunk_count());
  Status status;
  for_each_index(manifest.chunk_count(), threads_for(manifest.payload_bytes, threads), [&](std::size_t i) {
    const ChunkIndex chunk{static_cast<std::uint32_t>(i)};
    if (!record.digests.knows(chunk)) return;
    if (!has_data(files, manifest.chunk_offset(chunk), manifest.chunk_size(chunk))) return;
    std::vector<std::byte> bytes(manifest.chunk_size(chunk));
    const Status read = read_stream(files, manifest.chunk_offset(chunk), bytes);
    const bool matches = read.has_value() && content_digest_of(bytes) == record.digests.chunks[i];
    const std::lock_guard lock(mutex);
    if (matches) held.insert(chunk);
    if (!read.has_value() && !is_proven_wrong(read.error())) status = read;
  });
  WC_TRY(status);
  return held;
}

Status renew_record(VersionRecord& record, VersionFiles& files, unsigned threads) {
  Manifest& manifest = record.manifest;
  WC_ASSIGN(const SnapshotDigest digest, files_digest(files, threads));
  if (record.lacks_chunk_digests && manifest.id().is_full()) {
    std::mutex mutex;  // guards `status`
    Status status;
    std::vector<ContentDigest>& digests = record.digests.chunks;
    for_each_index(manifest.chunk_count(), threads_for(manifest.payload_bytes, threads), [&](std::size_t i) {
      const ChunkIndex chunk{static_cast<std::uint32_t>(i)};
      std::vector<std::byte> bytes(manifest.chunk_size(chunk));
      const Status read = read_stream(files, manifest.chunk_offset(chunk), bytes);
      if (read.has_value()) {
        digests[i] = content_digest_of(bytes);
        return;
      }
      const std::lock_guard lock(mutex);
      status = read;
    });
    WC_TRY(status);
    manifest.part_digests = part_digests_of(digests, manifest.part_chunks);
    record.digests.parts = ChunkSet(manifest.part_count(), true);
  }
  manifest.snapshot_digest = digest.root();
  manifest.signature = {};
  record.outdated = record.lacks_chunk_digests = false;
  return {};
}

Result<bool> snapshot_matches(const Manifest& manifest, VersionFiles& files, unsigned threads) {
  const Result<SnapshotDigest> digest = files_digest(files, threads);
  if (digest.has_value()) return digest->root() == manifest.snapshot_digest;
  if (is_proven_wrong(digest.error())) return false;
  return digest.error();
}

}  // namespace weightcast
