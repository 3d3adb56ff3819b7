#include "transport/io/store/files/recovery_checks.h"

#include <algorithm>
#include <mutex>

#include "base/parallel.h"
#include "transport/io/log.h"
#include "transport/io/store/files/readable.h"
#include "transport/io/store/files/snapshot_check.h"

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
  std::mutex mutex;  // guards `held`
  ChunkSet held(manifest.chunk_count());
  const unsigned at_once = threads_for(manifest.payload_bytes, threads);
  WC_TRY(for_each_until_error(manifest.chunk_count(), at_once, [&](std::size_t i) -> Status {
    const ChunkIndex chunk{static_cast<std::uint32_t>(i)};
    if (!record.digests.knows(chunk)) return {};
    if (!has_data(files, manifest.chunk_offset(chunk), manifest.chunk_size(chunk))) return {};
    std::vector<std::byte> bytes(manifest.chunk_size(chunk));
    const Status read = read_stream(files, manifest.chunk_offset(chunk), bytes);
    if (!read.has_value()) return is_proven_wrong(read.error()) ? Status() : read;
    if (content_digest_of(bytes) != record.digests.chunks[i]) return {};
    const std::lock_guard lock(mutex);
    held.insert(chunk);
    return {};
  }));
  return held;
}

Result<std::vector<ContentDigest>> chunk_digests_of(VersionFiles& files, std::uint32_t chunk_bytes, unsigned threads) {
  const std::uint64_t bytes = files.table().size_bytes();
  std::vector<ContentDigest> digests((bytes + chunk_bytes - 1) / chunk_bytes);
  const Status hashed = for_each_until_error(digests.size(), threads, [&](std::size_t chunk) -> Status {
    const std::uint64_t begin = std::uint64_t{chunk} * chunk_bytes;
    std::vector<std::byte> buffer(std::min<std::uint64_t>(chunk_bytes, bytes - begin));
    WC_TRY(read_stream(files, begin, buffer));
    digests[chunk] = content_digest_of(buffer);
    return {};
  });
  WC_TRY(hashed);
  return digests;
}

Status make_missing_digests(VersionRecord& record, VersionFiles& files, unsigned threads) {
  const Manifest& manifest = record.manifest;
  if (manifest.id().is_encoded() || record.digests.complete()) return {};
  WC_ASSIGN(record.digests.chunks,
            chunk_digests_of(files, manifest.chunk_bytes, threads_for(manifest.payload_bytes, threads)));
  if (part_digests_of(record.digests.chunks, manifest.part_chunks) != manifest.part_digests) {
    return fail(Errc::kCorrupt, Op::kVerify, "its files do not match the digests in its manifest");
  }
  record.digests.parts = ChunkSet(manifest.part_count(), true);
  return {};
}

Result<bool> write_record_if_room(FileSystem& files, const std::filesystem::path& path) {
  const Status written = write_record_again(files, path);
  if (written.has_value()) return true;
  if (written.error().code != Errc::kNoSpace) return written.error();
  log_warning("store: {}", written.error().message());
  WC_TRY(remove_if_there(files, path.native() + ".tmp"));
  return false;
}

Result<std::shared_ptr<const LeafSums>> matching_leaves(const Manifest& manifest, VersionFiles& files,
                                                        unsigned threads) {
  const Result<SnapshotDigest> digest = files_digest(files, threads);
  if (!digest.has_value() && !is_proven_wrong(digest.error())) return digest.error();
  if (!digest.has_value() || digest->root() != manifest.snapshot_digest) return std::shared_ptr<const LeafSums>();
  return std::make_shared<const LeafSums>(digest->leaves());
}

Result<bool> snapshot_matches(const Manifest& manifest, VersionFiles& files, unsigned threads) {
  WC_ASSIGN(const auto leaves, matching_leaves(manifest, files, threads));
  return leaves != nullptr;
}

}  // namespace weightcast
